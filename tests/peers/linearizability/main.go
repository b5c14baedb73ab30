// Judges whether a history of concurrent clients is linearizable: registers of compare-and-swap under keys, and lists of all of them.
//
// A line of the standard input is one operation in JSON. What is asked: "kind" is read, swap or list; a swap puts "put" under "key" if
// the value there is "expect" (null: there is no such key). What was told: "value" for a read, "done" for a swap, "all" for a list;
// "unknown" says that nobody told, so a swap may have been done, then or at any later time. "revision" is the store's number of the
// moment, if it was told. The answer is one line.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

type operation struct {
	Client   int                `json:"client"`
	Begun    int64              `json:"begun"`
	Ended    int64              `json:"ended"`
	Kind     string             `json:"kind"`
	Key      string             `json:"key"`
	Expect   *string            `json:"expect"`
	Put      *string            `json:"put"`
	Value    *string            `json:"value"`
	Done     bool               `json:"done"`
	Unknown  bool               `json:"unknown"`
	All      map[string]*string `json:"all"`
	Revision int64              `json:"revision"`
	// The place in the history.
	number int
}

// What is stored: the values, and the newest revision that anybody has been told of a write or a list.
type state struct {
	values   string
	revision int64
}

func main() {
	operations, err := read(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	counts := map[string]int{}
	for _, op := range operations {
		asked := op.Input.(operation)
		counts[asked.Kind]++
		if asked.Unknown {
			counts["unknown"]++
		}
		if asked.Kind == "swap" && asked.Done {
			counts["done"]++
		}
	}
	begun := time.Now()
	result := porcupine.CheckOperationsTimeout(model(), operations, 5*time.Minute)
	fmt.Printf("%s reads=%d swaps=%d done=%d lists=%d unknown=%d in=%s\n",
		strings.ToLower(string(result)), counts["read"], counts["swap"], counts["done"], counts["list"], counts["unknown"],
		time.Since(begun).Round(time.Millisecond))
}

func read(from io.Reader) ([]porcupine.Operation, error) {
	var all []operation
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var told operation
		decoder := json.NewDecoder(strings.NewReader(lines.Text()))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&told); err != nil {
			return nil, fmt.Errorf("%q: %w", lines.Text(), err)
		}
		if !slices.Contains([]string{"read", "swap", "list"}, told.Kind) {
			return nil, fmt.Errorf("%q: no such kind", lines.Text())
		}
		if told.Unknown && told.Kind != "swap" {
			return nil, fmt.Errorf("%q: only a swap may have been done unseen", lines.Text())
		}
		told.number = len(all)
		all = append(all, told)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the history is empty")
	}
	var operations []porcupine.Operation
	for _, told := range settled(all) {
		operations = append(operations, porcupine.Operation{ClientId: told.number, Input: told, Call: told.Begun, Output: told, Return: told.Ended})
	}
	return operations, lines.Err()
}

// Says what became of swaps that nobody told about. Every value is put once, who swaps names what it has seen, and everything is read at
// the end. So a swap whose value somebody saw was done before that, and one whose value nobody ever saw was not done: what it had put
// could only have been replaced by somebody who saw it. A deletion puts nothing that could be seen: it may have been done at any time.
func settled(all []operation) []operation {
	seen := map[string]int64{}
	see := func(key string, value *string, when int64) {
		if value == nil {
			return
		}
		name := key + "=" + *value
		if first, there := seen[name]; !there || when < first {
			seen[name] = when
		}
	}
	var last int64
	for _, op := range all {
		last = max(last, op.Ended)
		if op.Kind == "read" {
			see(op.Key, op.Value, op.Ended)
		}
		for key, value := range op.All {
			see(key, value, op.Ended)
		}
	}
	var certain []operation
	for _, op := range all {
		if op.Unknown && op.Put != nil {
			when, there := seen[op.Key+"="+*op.Put]
			if !there {
				continue
			}
			op.Unknown, op.Done, op.Ended = false, true, max(when, op.Begun)
		} else if op.Unknown {
			op.Ended = last + 1
		}
		certain = append(certain, op)
	}
	return certain
}

func model() porcupine.Model {
	return porcupine.Model{
		Init:  func() any { return state{} },
		Step:  func(before, input, _ any) (bool, any) { return step(before.(state), input.(operation)) },
		Equal: func(a, b any) bool { return a == b },
	}
}

func step(before state, op operation) (bool, state) {
	values := parsed(before.values)
	switch op.Kind {
	case "read":
		return same(values, op.Key, op.Value), before
	case "list":
		for key, value := range op.All {
			if value == nil || !same(values, key, value) {
				return false, before
			}
		}
		told := len(op.All) == len(values) && op.Revision >= before.revision
		return told, state{before.values, max(before.revision, op.Revision)}
	}
	if !same(values, op.Key, op.Expect) {
		// It was not done, and could not be.
		return !op.Done, before
	}
	if op.Unknown {
		// An order in which it was never done has it behind everything else.
		return true, state{written(values, op), before.revision}
	}
	if !op.Done || op.Revision != 0 && op.Revision <= before.revision {
		return false, before
	}
	return true, state{written(values, op), max(before.revision, op.Revision)}
}

func same(values map[string]string, key string, wanted *string) bool {
	found, there := values[key]
	if wanted == nil {
		return !there
	}
	return there && found == *wanted
}

func written(values map[string]string, op operation) string {
	if op.Put == nil {
		delete(values, op.Key)
	} else {
		values[op.Key] = *op.Put
	}
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		lines = append(lines, key+"="+values[key])
	}
	return strings.Join(lines, "\n")
}

func parsed(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		values[key] = value
	}
	return values
}
