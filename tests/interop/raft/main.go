// Command raft runs a small cluster of etcd's Raft library in one process, for the comparison with
// Quorate's core (src/core/raft/tests/differential). It reads one command per line from standard input,
// delivers messages until none is left, and answers with a line "ok", "refused" or "panic WHY", a
// line for each member, and a line ".". It uses no clock, no disk and no randomness.
package main

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// longest makes the library draw the longest election timeout each time, which
// is twice the configured one less a tick, as long as that is a power of two.
type longest struct{}

func (longest) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 0xff
	}
	return len(p), nil
}

// silent drops the library's log, and keeps its panics.
type silent struct{ raft.Logger }

func (silent) Debug(...any)            {}
func (silent) Debugf(string, ...any)   {}
func (silent) Info(...any)             {}
func (silent) Infof(string, ...any)    {}
func (silent) Warning(...any)          {}
func (silent) Warningf(string, ...any) {}
func (silent) Error(...any)            {}
func (silent) Errorf(string, ...any)   {}
func (silent) Panic(v ...any)          { panic(fmt.Sprint(v...)) }
func (silent) Panicf(f string, v ...any) {
	panic(fmt.Sprintf(f, v...))
}

// disk is the stored state of a member. A snapshot is created on request, of everything that the
// member has applied.
type disk struct {
	*raft.MemoryStorage
	applied func() (uint64, *pb.ConfState)
}

func (d *disk) Snapshot() (*pb.Snapshot, error) {
	if err := d.snapshotNow(); err != nil {
		return nil, err
	}
	return d.MemoryStorage.Snapshot()
}

func (d *disk) snapshotNow() error {
	index, conf := d.applied()
	_, err := d.MemoryStorage.CreateSnapshot(index, conf, nil)
	if errors.Is(err, raft.ErrSnapOutOfDate) {
		return nil
	}
	return err
}

type node struct {
	id      uint64
	raw     *raft.RawNode
	disk    *disk
	applied uint64
	conf    *pb.ConfState
	up      bool
}

type settings struct {
	election             int
	preVote, checkQuorum bool
	bytes                uint64
	inflight             int
}

type cluster struct {
	set   settings
	nodes map[uint64]*node
	order []uint64
	net   []*pb.Message
	cuts  map[[2]uint64]bool
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func (c *cluster) start(n *node) {
	meta := must(n.disk.MemoryStorage.Snapshot()).GetMetadata()
	n.applied, n.conf = meta.GetIndex(), pb.EnsureConfState(meta.GetConfState())
	raw, err := raft.NewRawNode(&raft.Config{
		ID: n.id, ElectionTick: c.set.election, HeartbeatTick: 1,
		Storage: n.disk, Applied: n.applied,
		MaxSizePerMsg: c.set.bytes, MaxCommittedSizePerReady: 1 << 30, MaxInflightMsgs: c.set.inflight,
		CheckQuorum: c.set.checkQuorum, PreVote: c.set.preVote,
		DisableProposalForwarding: true, StepDownOnRemoval: true,
		Logger: silent{},
	})
	check(err)
	n.raw, n.up = raw, true
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// add creates a member that starts from a snapshot at index 1 of term 1, or with no state when conf
// is nil.
func (c *cluster) add(id uint64, conf *pb.ConfState) {
	n := &node{id: id, disk: &disk{MemoryStorage: raft.NewMemoryStorage()}}
	n.disk.applied = func() (uint64, *pb.ConfState) { return n.applied, n.conf }
	if conf != nil {
		check(n.disk.ApplySnapshot(&pb.Snapshot{Metadata: &pb.SnapshotMetadata{
			Index: new(uint64(1)), Term: new(uint64(1)), ConfState: conf,
		}}))
		check(n.disk.SetHardState(&pb.HardState{
			Term: new(uint64(1)), Vote: new(uint64(0)), Commit: new(uint64(1)),
		}))
	}
	c.nodes[id] = n
	c.order = append(c.order, id)
	c.start(n)
}

// ready carries out one Ready: store, send, apply. It returns whether there was one.
func (c *cluster) ready(n *node) bool {
	if !n.up || !n.raw.HasReady() {
		return false
	}
	rd := n.raw.Ready()
	if !raft.IsEmptySnap(rd.Snapshot) {
		check(n.disk.ApplySnapshot(rd.Snapshot))
		n.applied = rd.Snapshot.GetMetadata().GetIndex()
		n.conf = rd.Snapshot.GetMetadata().GetConfState()
	}
	check(n.disk.Append(rd.Entries))
	if !raft.IsEmptyHardState(rd.HardState) {
		check(n.disk.SetHardState(rd.HardState))
	}
	c.net = append(c.net, rd.Messages...)
	confirm := 0
	for _, e := range rd.CommittedEntries {
		if e.GetType() == pb.EntryConfChange {
			change := &pb.ConfChange{}
			check(proto.Unmarshal(e.GetData(), change))
			leads := n.raw.BasicStatus().RaftState == raft.StateLeader
			n.conf = n.raw.ApplyConfChange(change)
			if leads && change.GetType() == pb.ConfChangeRemoveNode && change.GetNodeId() != n.id {
				confirm++
			}
		}
		n.applied = e.GetIndex()
	}
	n.raw.Advance(rd)
	// Quorate's core appends an empty entry after each removal by itself.
	for ; confirm > 0; confirm-- {
		check(n.raw.Propose(nil))
	}
	return true
}

func (c *cluster) snapshotReport(m *pb.Message, status raft.SnapshotStatus) {
	if n := c.nodes[m.GetFrom()]; m.GetType() == pb.MsgSnap && n != nil && n.up {
		n.raw.ReportSnapshot(m.GetTo(), status)
	}
}

func (c *cluster) deliver(m *pb.Message) {
	n := c.nodes[m.GetTo()]
	lost := c.cuts[[2]uint64{m.GetFrom(), m.GetTo()}] || n == nil || !n.up
	// The library would drop a snapshot of a leader with an older term.
	stale := !lost && m.GetType() == pb.MsgSnap && m.GetTerm() < n.raw.BasicStatus().GetTerm()
	if lost || stale {
		c.snapshotReport(m, raft.SnapshotFailure)
		return
	}
	c.snapshotReport(m, raft.SnapshotFinish)
	if err := n.raw.Step(m); err != nil && !errors.Is(err, raft.ErrStepPeerNotFound) {
		panic(err)
	}
}

func (c *cluster) settle() {
	for range 10_000 {
		moved := false
		for _, id := range c.order {
			for c.ready(c.nodes[id]) {
				moved = true
			}
		}
		net := c.net
		c.net = nil
		// Link by link: the order in which a leader sends to its members is not specified.
		slices.SortStableFunc(net, func(a, b *pb.Message) int {
			return cmp.Or(cmp.Compare(a.GetFrom(), b.GetFrom()), cmp.Compare(a.GetTo(), b.GetTo()))
		})
		for _, m := range net {
			moved = true
			c.deliver(m)
			for n := c.nodes[m.GetTo()]; n != nil && c.ready(n); {
			}
		}
		if !moved {
			return
		}
	}
	panic("the cluster never comes to rest")
}

func text(e *pb.Entry) string {
	at := fmt.Sprintf("%d/%d", e.GetTerm(), e.GetIndex())
	if e.GetType() != pb.EntryConfChange {
		return at + ":" + string(e.GetData())
	}
	change := &pb.ConfChange{}
	check(proto.Unmarshal(e.GetData(), change))
	name := map[pb.ConfChangeType]string{
		pb.ConfChangeAddNode: "voter", pb.ConfChangeAddLearnerNode: "learner", pb.ConfChangeRemoveNode: "remove",
	}[change.GetType()]
	return fmt.Sprintf("%s:%s-%d", at, name, change.GetNodeId())
}

func (c *cluster) show(out *bufio.Writer) {
	roles := map[raft.StateType]string{
		raft.StateFollower: "Follower", raft.StatePreCandidate: "PreCandidate",
		raft.StateCandidate: "Candidate", raft.StateLeader: "Leader",
	}
	for _, id := range c.order {
		n := c.nodes[id]
		if !n.up {
			fmt.Fprintf(out, "%d down\n", id)
			continue
		}
		s := n.raw.Status()
		first, last := must(n.disk.FirstIndex()), must(n.disk.LastIndex())
		fmt.Fprintf(out, "%d term=%d vote=%d role=%s lead=%d commit=%d applied=%d last=%d voters=%s learners=%s log=(%d/%d)",
			id, s.GetTerm(), s.GetVote(), roles[s.RaftState], s.Lead, s.GetCommit(), s.Applied, last,
			members(n.conf.GetVoters()), members(n.conf.GetLearners()), must(n.disk.Term(first-1)), first-1)
		if last >= first {
			for _, e := range must(n.disk.Entries(first, last+1, 1<<60)) {
				fmt.Fprintf(out, " %s", text(e))
			}
		}
		fmt.Fprintln(out)
	}
}

func members(ids []uint64) string {
	var parts []string
	for _, id := range ids {
		parts = append(parts, strconv.FormatUint(id, 10))
	}
	return "(" + strings.Join(parts, " ") + ")"
}

// act carries out a command, except for delivering its messages. It returns whether the library
// accepted it.
func (c *cluster) act(words []string) bool {
	arg := func(i int) uint64 { return must(strconv.ParseUint(words[i], 10, 64)) }
	at := func() *node { return c.nodes[arg(1)] }
	switch words[0] {
	case "start": // start VOTERS LEARNERS ELECTION PREVOTE CHECKQUORUM BYTES INFLIGHT
		*c = cluster{nodes: map[uint64]*node{}, cuts: map[[2]uint64]bool{}}
		c.set = settings{int(arg(3)), words[4] == "true", words[5] == "true", arg(6), int(arg(7))}
		conf := &pb.ConfState{}
		for id := uint64(1); id <= arg(1)+arg(2); id++ {
			if id <= arg(1) {
				conf.Voters = append(conf.Voters, id)
			} else {
				conf.Learners = append(conf.Learners, id)
			}
		}
		for id := uint64(1); id <= arg(1)+arg(2); id++ {
			c.add(id, conf)
		}
	case "new":
		c.add(arg(1), nil)
	case "tick":
		at().raw.Tick()
	case "campaign":
		return at().raw.Campaign() == nil
	case "propose":
		// The library sends one message per proposal. Quorate's core sends all entries that there are: in
		// one message, or in one for each if a message holds one entry.
		m := &pb.Message{Type: pb.MsgProp.Enum(), From: new(arg(1))}
		for _, data := range words[2:] {
			m.Entries = append(m.Entries, &pb.Entry{Data: []byte(data)})
			if c.set.bytes == 0 || len(m.Entries) == len(words[2:]) {
				if at().raw.Step(m) != nil {
					return false
				}
				m = &pb.Message{Type: pb.MsgProp.Enum(), From: new(arg(1))}
			}
		}
	case "change":
		kind := map[string]pb.ConfChangeType{
			"voter": pb.ConfChangeAddNode, "learner": pb.ConfChangeAddLearnerNode, "remove": pb.ConfChangeRemoveNode,
		}[words[2]]
		return at().raw.ProposeConfChange(&pb.ConfChange{Type: kind.Enum(), NodeId: new(arg(3))}) == nil
	case "transfer":
		at().raw.TransferLeader(arg(2))
	case "cut":
		c.cuts[[2]uint64{arg(1), arg(2)}] = true
	case "heal":
		clear(c.cuts)
	case "compact":
		check(at().disk.snapshotNow())
		check(at().disk.Compact(arg(2)))
	case "crash":
		at().up = false
	case "restart": // restart ID COMMIT: what the hard state on disk says of the commit index
		hard, _, err := at().disk.InitialState()
		check(err)
		if !raft.IsEmptyHardState(hard) {
			hard = proto.Clone(hard).(*pb.HardState)
			hard.Commit = new(arg(2))
			check(at().disk.SetHardState(hard))
		}
		c.start(at())
	default:
		panic("no such command")
	}
	return true
}

func (c *cluster) answer(words []string, out *bufio.Writer) {
	defer func() {
		if why := recover(); why != nil {
			fmt.Fprintf(out, "panic %v\n", why)
		}
	}()
	taken := c.act(words)
	c.settle()
	if taken {
		fmt.Fprintln(out, "ok")
	} else {
		fmt.Fprintln(out, "refused")
	}
	c.show(out)
}

func main() {
	rand.Reader = longest{}
	in, out := bufio.NewScanner(os.Stdin), bufio.NewWriter(os.Stdout)
	c := &cluster{}
	for in.Scan() {
		c.answer(strings.Fields(in.Text()), out)
		fmt.Fprintln(out, ".")
		check(out.Flush())
	}
	check(in.Err())
}
