// Slowdisk runs a command while a directory is on a disk with slow syncs.
//
//	slowdisk -delay 2ms -backing DIR -mount DIR -- COMMAND...
//
// Files of -backing appear below -mount, through FUSE. Each fsync and fdatasync there does its work
// and takes the delay longer, as on disks with real durability. Needs root and /dev/fuse. The mount
// ends with the command, whose exit status is returned.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// A file with slow syncs. Those of a directory are not slowed down.
type node struct {
	fs.LoopbackNode
	delay time.Duration
}

var _ = (fs.NodeFsyncer)((*node)(nil))

func (n *node) Fsync(ctx context.Context, file fs.FileHandle, flags uint32) syscall.Errno {
	time.Sleep(n.delay)
	if file, ok := file.(fs.FileFsyncer); ok {
		return file.Fsync(ctx, flags)
	}
	return syscall.EBADF
}

func mounted(backing, mount string, delay time.Duration) (*fuse.Server, error) {
	root := &fs.LoopbackRoot{Path: backing}
	root.NewNode = func(root *fs.LoopbackRoot, _ *fs.Inode, _ string, _ *syscall.Stat_t) fs.InodeEmbedder {
		return &node{LoopbackNode: fs.LoopbackNode{RootData: root}, delay: delay}
	}
	root.RootNode = &node{LoopbackNode: fs.LoopbackNode{RootData: root}, delay: delay}
	long := time.Second
	return fs.Mount(mount, root.RootNode, &fs.Options{
		AttrTimeout:  &long,
		EntryTimeout: &long,
		MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "slowdisk", Name: "slowdisk"},
	})
}

func run(arguments []string) (int, error) {
	command := exec.Command(arguments[0], arguments[1:]...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	// Signals are meant for the command, which ends first: then the file system is unmounted.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if err := command.Start(); err != nil {
		return 1, err
	}
	go func() {
		for signal := range signals {
			_ = command.Process.Signal(signal)
		}
	}()
	err := command.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, err
}

func main() {
	delay := flag.Duration("delay", 2*time.Millisecond, "time that a sync takes longer")
	backing := flag.String("backing", "", "where the files are")
	mount := flag.String("mount", "", "where they are seen")
	flag.Parse()
	if *backing == "" || *mount == "" || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: slowdisk -backing DIR -mount DIR -- COMMAND...")
		os.Exit(2)
	}
	server, err := mounted(*backing, *mount, *delay)
	if err != nil {
		fmt.Fprintf(os.Stderr, "slowdisk: cannot mount %s: %v (needs root and /dev/fuse)\n", *mount, err)
		os.Exit(1)
	}
	status, err := run(flag.Args())
	if err != nil {
		fmt.Fprintf(os.Stderr, "slowdisk: %v\n", err)
	}
	if err := server.Unmount(); err != nil {
		fmt.Fprintf(os.Stderr, "slowdisk: %s stays mounted: %v\n", *mount, err)
		status = max(status, 1)
	}
	os.Exit(status)
}
