// `quorate operator` with its console, beside a small API server on this machine: it has one EtcdCluster, reviews tokens and
// access, grants the Lease, and refuses whatever else would be written.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

// The token of a subject that may list everything in namespace tenants, while `right` holds.
export const TOKEN = 'a-token-of-alice';

export class Operator {
  constructor(cluster) {
    this.cluster = cluster;
    this.right = true;
    this.asked = new Set();
    this.log = '';
    this.folder = mkdtempSync(join(tmpdir(), 'quorate-operator-'));
    this.api = http.createServer((request, answer) => this.#answer(request, answer));
  }

  // Starts both; resolves to the console's URL.
  async start() {
    await new Promise((resolve) => this.api.listen(0, '127.0.0.1', resolve));
    const kubeconfig = join(this.folder, 'kubeconfig');
    const server = `http://127.0.0.1:${this.api.address().port}`;
    const named = { clusters: [{ name: 'a', cluster: { server } }], users: [{ name: 'a', user: { token: 'operator' } }] };
    const context = { contexts: [{ name: 'a', context: { cluster: 'a', user: 'a', namespace: 'quorate-system' } }], 'current-context': 'a' };
    writeFileSync(kubeconfig, JSON.stringify({ apiVersion: 'v1', kind: 'Config', ...named, ...context }));
    const words = ['operator', '--image=quorate', '--probe-address=127.0.0.1:0', '--console-address=127.0.0.1:0', '--log-format=json'];
    const env = { ...process.env, KUBECONFIG: kubeconfig, RUST_LOG: 'info' };
    this.child = spawn(process.env.QUORATE, words, { env, stdio: ['ignore', 'pipe', 'pipe'] });
    return new Promise((resolve, reject) => {
      const read = (text) => {
        this.log += text;
        const found = /"the console is served","address":"([^"]+)"/.exec(this.log);
        if (found) resolve(`http://${found[1]}/`);
      };
      this.child.stdout.on('data', read);
      this.child.stderr.on('data', read);
      this.child.on('exit', (code) => reject(new Error(`quorate operator ended with ${code}:\n${this.log}`)));
    });
  }

  async stop() {
    if (this.child && this.child.exitCode === null) {
      const ended = new Promise((resolve) => this.child.once('exit', resolve));
      this.child.kill('SIGKILL');
      await ended;
    }
    this.api.closeAllConnections();
    this.api.close();
    rmSync(this.folder, { recursive: true, force: true });
  }

  #answer(request, answer) {
    let body = '';
    request.on('data', (text) => { body += text; });
    request.on('end', () => {
      const url = new URL(request.url, 'http://api');
      const kind = url.pathname.split('/').pop();
      // A watch in which nothing happens.
      if (url.searchParams.get('watch') === 'true') return answer.writeHead(200, { 'content-type': 'application/json' }).flushHeaders();
      const [code, document] = this.#document(request.method, url.pathname, kind, body);
      answer.writeHead(code, { 'content-type': 'application/json' }).end(JSON.stringify(document));
    });
  }

  #document(method, path, kind, body) {
    if (method === 'GET' && path === '/apis') return [200, { kind: 'APIGroupList', groups: [] }];
    // By its name nothing is found.
    if (method === 'GET' && !/\/namespaces\/[^/]+\/[^/]+\/[^/]+$/.test(path)) {
      const items = kind === 'etcdclusters' ? [this.cluster] : [];
      return [200, { kind: 'List', apiVersion: 'v1', metadata: { resourceVersion: '1' }, items }];
    }
    if (method === 'POST' && kind === 'tokenreviews') return [201, this.#reviewed(JSON.parse(body), (spec) => this.#known(spec))];
    if (method === 'POST' && kind === 'subjectaccessreviews') return [201, this.#reviewed(JSON.parse(body), (spec) => this.#allowed(spec))];
    if (path.includes('/leases') && method !== 'GET') {
      const lease = JSON.parse(body);
      return [200, { ...lease, metadata: { ...lease.metadata, resourceVersion: String(Date.now()) } }];
    }
    const code = method === 'GET' ? 404 : 403;
    return [code, { kind: 'Status', apiVersion: 'v1', status: 'Failure', code, reason: code === 404 ? 'NotFound' : 'Forbidden', message: 'not here' }];
  }

  #reviewed(review, status) {
    return { ...review, metadata: {}, status: status(review.spec) };
  }

  #known(spec) {
    const known = spec.token === TOKEN && spec.audiences?.includes('quorate.dev');
    return known ? { authenticated: true, user: { username: 'alice' }, audiences: ['quorate.dev'] } : { error: 'no such token' };
  }

  #allowed(spec) {
    const { verb, resource, namespace } = spec.resourceAttributes;
    this.asked.add(`${verb} ${resource}`);
    return { allowed: this.right && spec.user === 'alice' && verb === 'list' && namespace === 'tenants' && resource !== 'etcdbackups' };
  }
}
