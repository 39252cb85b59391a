// A cluster of three by `quorate local --console`, as processes on this machine. Ends them all.

import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

// A member that is stopped stays what it is: nothing takes its place during the test.
const RESOURCE = `apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: demo}
spec:
  replicas: 3
  storage: {size: 1Gi}
  healing: {unhealthySeconds: 3600}
`;

export class Local {
  constructor() {
    this.folder = mkdtempSync(join(tmpdir(), 'quorate-console-'));
    writeFileSync(join(this.folder, 'demo.yaml'), RESOURCE);
    this.output = '';
  }

  // Starts it, and resolves to the console's URL. `address`: where it is; by default a free port.
  start(address) {
    const flag = address ? `--console=${address}` : '--console';
    const words = ['local', join(this.folder, 'demo.yaml'), '--dir', join(this.folder, 'cluster'), flag];
    this.child = spawn(process.env.QUORATE, words, { stdio: ['ignore', 'pipe', 'inherit'] });
    return new Promise((resolve, reject) => {
      this.child.stdout.on('data', (text) => {
        this.output += text;
        const found = /console: (http:\S+)/.exec(this.output);
        if (found) resolve(found[1]);
      });
      this.child.on('exit', (code) => reject(new Error(`quorate local ended with ${code}:\n${this.output}`)));
    });
  }

  // Ends it as Ctrl-C does, with all members.
  async stop() {
    if (!this.child || this.child.exitCode !== null) return;
    const ended = new Promise((resolve) => this.child.once('exit', resolve));
    this.child.kill('SIGINT');
    await ended;
    this.output = '';
  }

  // The process of a member.
  pid(member) {
    for (const entry of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
      let words = [];
      try {
        words = readFileSync(`/proc/${entry}/cmdline`, 'utf8').split('\0');
      } catch {
        continue;
      }
      if (words.includes(`--name=${member}`) && words.some((word) => word.includes(this.folder))) return Number(entry);
    }
    throw new Error(`no process of ${member}`);
  }

  remove() {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
