// Porcupine is the second checker of the histories that tests/robustness has recorded: the one of
// github.com/anishathalye/porcupine, which searches for an order of the operations. It is
// independent of the first checker.
//
//	porcupine [-timeout 60s] [-picture DIR] OPERATIONS.jsonl
//
// Keys of one group (everything up to the last slash) are one history, in which an operation with
// an unknown outcome may take effect at any time after its start. Most operations that were never
// observed have not happened: an order without them is searched first, and is as good as one with
// them, since each may also come last. Revisions of all answers together are further histories. The
// last line of the output is one JSON object with the counts; a history that could not be decided
// in time counts as unknown, never as legal. It exits with 0 only if no history is illegal.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

type compare struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type act struct {
	Kind      string `json:"kind"`
	Key       string `json:"key"`
	End       string `json:"end"`
	Value     string `json:"value"`
	Lease     int64  `json:"lease"`
	Limit     int64  `json:"limit"`
	Revision  int64  `json:"revision"`
	KeysOnly  bool   `json:"keys_only"`
	CountOnly bool   `json:"count_only"`
}

type kv struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type given struct {
	Kind    string `json:"kind"`
	Deleted int64  `json:"deleted"`
	Kvs     []kv   `json:"kvs"`
	Count   int64  `json:"count"`
}

type request struct {
	What         string    `json:"what"`
	Compares     []compare `json:"compares"`
	Then         []act     `json:"then"`
	OrElse       []act     `json:"or_else"`
	Serializable bool      `json:"serializable"`
}

type outcome struct {
	Outcome   string  `json:"outcome"`
	Revision  int64   `json:"revision"`
	Succeeded bool    `json:"succeeded"`
	Given     []given `json:"given"`
}

type operation struct {
	Client  int     `json:"client"`
	Began   int64   `json:"began"`
	Ended   int64   `json:"ended"`
	Request request `json:"request"`
	Outcome outcome `json:"outcome"`
}

// slots is the maximum number of keys in a group.
const slots = 16

// state is a group: the values of its keys, empty if a key does not exist, and the newest revision.
type state struct {
	values   [slots]string
	revision int64
}

// group is a separate history: its keys in order, each with its place in the state.
type group struct {
	keys []string
}

func (g *group) place(key string) int { return sort.SearchStrings(g.keys, key) }

func (g *group) holds(s *state, compares []compare) bool {
	for _, c := range compares {
		if s.values[g.place(c.Key)] != c.Value {
			return false
		}
	}
	return true
}

func within(key, from, end string) bool {
	if end == "" {
		return key == from
	}
	return key >= from && key < end
}

// do carries out a branch; if it was answered, the answers must match.
func (g *group) do(s *state, branch []act, answers []given, answered bool) bool {
	if answered && len(answers) != len(branch) {
		return false
	}
	for n, a := range branch {
		switch a.Kind {
		case "put":
			s.values[g.place(a.Key)] = a.Value
		case "delete":
			deleted := int64(0)
			for i, key := range g.keys {
				if within(key, a.Key, a.End) && s.values[i] != "" {
					s.values[i] = ""
					deleted++
				}
			}
			if answered && deleted != answers[n].Deleted {
				return false
			}
		case "range":
			if answered && a.Revision == 0 && !g.fits(s, a, answers[n]) {
				return false
			}
		}
	}
	return true
}

func (g *group) fits(s *state, a act, answer given) bool {
	count := int64(0)
	for i, key := range g.keys {
		if !within(key, a.Key, a.End) || s.values[i] == "" {
			continue
		}
		count++
		if a.CountOnly || (a.Limit > 0 && count > a.Limit) {
			continue
		}
		if int64(len(answer.Kvs)) < count {
			return false
		}
		there := answer.Kvs[count-1]
		if there.Key != key || (!a.KeysOnly && there.Value != s.values[i]) {
			return false
		}
	}
	if a.Limit > 0 && count > a.Limit && !a.CountOnly {
		return answer.Count == count && int64(len(answer.Kvs)) == a.Limit
	}
	return answer.Count == count && (a.CountOnly || int64(len(answer.Kvs)) == count)
}

func (g *group) model() porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return state{} },
		Step: func(before, input, output interface{}) (bool, interface{}) {
			s, in, out := before.(state), input.(request), output.(outcome)
			holds := g.holds(&s, in.Compares)
			branch := in.OrElse
			if holds {
				branch = in.Then
			}
			if out.Outcome == "unknown" {
				g.do(&s, branch, nil, false)
				return true, s
			}
			if holds != out.Succeeded || out.Revision < s.revision {
				return false, s
			}
			if wrote(branch, out.Given) && out.Revision == s.revision {
				return false, s
			}
			s.revision = out.Revision
			return g.do(&s, branch, out.Given, true), s
		},
		Equal:             func(a, b interface{}) bool { return a.(state) == b.(state) },
		DescribeOperation: func(in, out interface{}) string { return fmt.Sprintf("%+v -> %+v", in, out) },
	}
}

func wrote(branch []act, answers []given) bool {
	for n, a := range branch {
		if a.Kind == "put" || (a.Kind == "delete" && n < len(answers) && answers[n].Deleted > 0) {
			return true
		}
	}
	return false
}

// revisions is the model of one number that never decreases and that every write increases.
var revisions = porcupine.Model{
	Init: func() interface{} { return int64(0) },
	Step: func(before, input, output interface{}) (bool, interface{}) {
		newest, writes, found := before.(int64), input.(bool), output.(int64)
		return found > newest || (found == newest && !writes), found
	},
	Equal: func(a, b interface{}) bool { return a == b },
}

func read(path string) ([]operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []operation
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<28)
	for lines.Scan() {
		var one operation
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, err
		}
		// A refused request changed nothing, and a serializable read guarantees nothing about time.
		if one.Request.What == "txn" && one.Outcome.Outcome != "refused" && !one.Request.Serializable {
			all = append(all, one)
		}
	}
	return all, lines.Err()
}

func groupOf(o operation) (string, []string) {
	var keys []string
	pinned := false
	for _, a := range append(append([]act{}, o.Request.Then...), o.Request.OrElse...) {
		if a.Lease != 0 {
			return "", nil // a lease's end deletes its keys, which no client asks for
		}
		pinned = pinned || a.Revision != 0
		if a.Kind == "put" || a.End == "" {
			keys = append(keys, a.Key)
		}
	}
	for _, c := range o.Request.Compares {
		keys = append(keys, c.Key)
	}
	if pinned || len(o.Request.Then) == 0 {
		return "", nil
	}
	first := o.Request.Then[0].Key
	return first[:strings.LastIndex(first, "/")+1], keys
}

type history struct {
	name       string
	model      porcupine.Model
	operations []porcupine.Operation
}

// likely leaves out the operations of unknown outcome whose values were never observed, and with
// them those that delete, unless they are requested.
func (h history) likely(deletes bool) []porcupine.Operation {
	seen := map[string]bool{}
	for _, o := range h.operations {
		in, isRequest := o.Input.(request)
		if !isRequest {
			return h.operations
		}
		for _, c := range in.Compares {
			seen[c.Value] = true
		}
		for _, g := range o.Output.(outcome).Given {
			for _, kv := range g.Kvs {
				seen[kv.Value] = true
			}
		}
	}
	var kept []porcupine.Operation
	for _, o := range h.operations {
		keep := o.Output.(outcome).Outcome != "unknown"
		in := o.Input.(request)
		for _, a := range append(append([]act{}, in.Then...), in.OrElse...) {
			keep = keep || (a.Kind == "put" && seen[a.Value]) || (a.Kind == "delete" && deletes)
		}
		if keep {
			kept = append(kept, o)
		}
	}
	return kept
}

func groups(all []operation) ([]history, error) {
	keys, members := map[string]map[string]bool{}, map[string][]porcupine.Operation{}
	for _, o := range all {
		name, used := groupOf(o)
		if name == "" || (o.Outcome.Outcome == "unknown" && !asks(o.Request)) {
			continue
		}
		if keys[name] == nil {
			keys[name] = map[string]bool{}
		}
		for _, key := range used {
			keys[name][key] = true
		}
		returned := o.Ended
		if o.Outcome.Outcome == "unknown" {
			returned = math.MaxInt64
		}
		members[name] = append(members[name], porcupine.Operation{
			ClientId: o.Client, Input: o.Request, Call: o.Began, Output: o.Outcome, Return: returned,
		})
	}
	var found []history
	for name, operations := range members {
		g := &group{}
		for key := range keys[name] {
			g.keys = append(g.keys, key)
		}
		sort.Strings(g.keys)
		if len(g.keys) > slots {
			return nil, fmt.Errorf("group %q has %d keys, and %d are provided for", name, len(g.keys), slots)
		}
		found = append(found, history{name, g.model(), operations})
	}
	sort.Slice(found, func(a, b int) bool { return found[a].name < found[b].name })
	return found, nil
}

// asks returns whether a request can change anything.
func asks(r request) bool {
	for _, a := range append(append([]act{}, r.Then...), r.OrElse...) {
		if a.Kind != "range" {
			return true
		}
	}
	return false
}

// numbers are the revisions of all answers, in pieces: leaving out a part of a history does not
// affect the rest of it.
func numbers(all []operation) []history {
	const piece = 500
	var answered []operation
	for _, o := range all {
		if o.Outcome.Outcome == "done" {
			answered = append(answered, o)
		}
	}
	sort.Slice(answered, func(a, b int) bool { return answered[a].Began < answered[b].Began })
	var found []history
	for from := 0; from < len(answered); from += piece {
		one := history{name: fmt.Sprintf("revisions %d", from/piece), model: revisions}
		for _, o := range answered[from:min(from+piece, len(answered))] {
			branch := o.Request.OrElse
			if o.Outcome.Succeeded {
				branch = o.Request.Then
			}
			one.operations = append(one.operations, porcupine.Operation{
				ClientId: o.Client, Input: wrote(branch, o.Outcome.Given), Call: o.Began,
				Output: o.Outcome.Revision, Return: o.Ended,
			})
		}
		found = append(found, one)
	}
	return found
}

type summary struct {
	Operations int      `json:"operations"`
	Histories  int      `json:"histories"`
	Ok         int      `json:"ok"`
	Illegal    []string `json:"illegal"`
	Unknown    []string `json:"unknown"`
	Longest    float64  `json:"longest_seconds"`
}

func main() {
	timeout := flag.Duration("timeout", time.Minute, "for each history")
	picture := flag.String("picture", "", "folder for a picture of each history that is illegal")
	flag.Parse()
	all, err := read(flag.Arg(0))
	if err != nil {
		fail(err)
	}
	histories, err := groups(all)
	if err != nil {
		fail(err)
	}
	totals := summary{Operations: len(all), Illegal: []string{}, Unknown: []string{}}
	for _, one := range append(histories, numbers(all)...) {
		began := time.Now()
		result := porcupine.Illegal
		for _, operations := range [][]porcupine.Operation{one.likely(false), one.likely(true), one.operations} {
			if result != porcupine.Ok {
				result = porcupine.CheckOperationsTimeout(one.model, operations, *timeout)
			}
		}
		totals.Histories++
		totals.Longest = max(totals.Longest, time.Since(began).Seconds())
		switch result {
		case porcupine.Ok:
			totals.Ok++
		case porcupine.Illegal:
			totals.Illegal = append(totals.Illegal, one.name)
			if *picture != "" {
				name := strings.NewReplacer("/", "_", " ", "_").Replace(one.name) + ".html"
				_, info := porcupine.CheckOperationsVerbose(one.model, one.operations, *timeout)
				if err := porcupine.VisualizePath(one.model, info, filepath.Join(*picture, name)); err != nil {
					fail(err)
				}
			}
		default:
			totals.Unknown = append(totals.Unknown, one.name)
		}
	}
	line, err := json.Marshal(totals)
	if err != nil {
		fail(err)
	}
	fmt.Println(string(line))
	if len(totals.Illegal) > 0 {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "porcupine:", err)
	os.Exit(2)
}
