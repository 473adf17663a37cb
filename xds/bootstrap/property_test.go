// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
)

// TestMutations changes valid and broken documents at random, as text and as trees. Parse must
// return either complete errors or a config that works and that is a fixed point.
func TestMutations(t *testing.T) {
	r := rand.New(rand.NewPCG(20, 26))
	var corpus [2][][]byte
	for i, dir := range []string{"good", "broken"} {
		for _, name := range documents(t, dir) {
			corpus[i] = append(corpus[i], read(t, name))
		}
	}
	rounds := 10_000
	if testing.Short() {
		rounds = 2_000
	}
	good := 0
	for range rounds {
		texts := corpus[r.IntN(2)]
		text := slices.Clone(texts[r.IntN(len(texts))])
		if r.IntN(2) == 0 {
			text = mutateText(r, text)
		} else {
			text = mutateTree(r, text)
		}
		c, err := testParser().Parse("test", text)
		if err != nil {
			for _, e := range mistakes(t, err) {
				if e.Source == "" || e.Path == "" || e.Problem == "" || e.Fix == "" || e.Error() == "" {
					t.Fatalf("%s: incomplete error %#v", text, e)
				}
			}
			continue
		}
		good++
		checkUsable(t, text, c)
	}
	if good < rounds/10 {
		t.Errorf("only %d of %d mutated documents are valid, so the test sees little", good, rounds)
	}
}

func checkUsable(t *testing.T, text []byte, c *Config) {
	t.Helper()
	if len(c.Servers) == 0 || c.DefaultListenerTemplate == "" || c.String() == "" {
		t.Fatalf("%s: incomplete config %s", text, c)
	}
	chains := [][]*Server{c.Servers}
	for name, a := range c.Authorities {
		chains = append(chains, a.Servers)
		if _, err := c.ListenerName(name, "a"); err != nil && name != "" {
			t.Fatalf("%s: ListenerName(%q): %v", text, name, err)
		}
	}
	byKey := make(map[string]*Server)
	for _, chain := range chains {
		for _, s := range chain {
			if known := byKey[s.Key()]; known != nil && known != s {
				t.Fatalf("%s: two servers with key %s", text, s.Key())
			}
			byKey[s.Key()] = s
			opts, stop, err := s.DialOptions()
			if err != nil || len(opts) == 0 {
				t.Fatalf("%s: DialOptions of %v: %v", text, s, err)
			}
			stop()
		}
	}
	if _, err := proto.Marshal(c.LRSNode()); err != nil {
		t.Fatalf("%s: node: %v", text, err)
	}
	again, err := testParser().Parse("test", canonical(c.document(false)))
	if err != nil || again.Fingerprint() != c.Fingerprint() {
		t.Fatalf("%s: is understood as %s, which gives %v, %v", text, c, again, err)
	}
}

// mutateText changes a few bytes.
func mutateText(r *rand.Rand, text []byte) []byte {
	for range 1 + r.IntN(3) {
		i := r.IntN(len(text) + 1)
		j := min(len(text), i+r.IntN(4))
		insert := []string{"", "{", "}", "[", "]", ",", ":", `"`, "\\", "null", "1e999", "\x00", "\xff", "a", "[]", "{}"}[r.IntN(16)]
		text = slices.Replace(text, i, j, []byte(insert)...)
	}
	return text
}

// mutateTree replaces, removes, renames or duplicates a node of the tree.
func mutateTree(r *rand.Rand, text []byte) []byte {
	root, err := decode("test", text)
	if err != nil {
		return text
	}
	return canonical(mutate(r, root.v))
}

func mutate(r *rand.Rand, v any) any {
	if r.IntN(8) == 0 {
		return []any{nil, true, json.Number("7"), "", "insecure", "%s", []any{}, map[string]any{}, []any{nil}, map[string]any{"type": "tls"}}[r.IntN(10)]
	}
	switch x := v.(type) {
	case []any:
		if len(x) == 0 {
			return x
		}
		i := r.IntN(len(x))
		switch r.IntN(4) {
		case 0:
			return slices.Delete(x, i, i+1)
		case 1:
			return append(x, x[i])
		}
		x[i] = mutate(r, x[i])
	case map[string]any:
		if len(x) == 0 {
			return x
		}
		names := make([]string, 0, len(x))
		for name := range x {
			names = append(names, name)
		}
		slices.Sort(names)
		name := names[r.IntN(len(names))]
		switch r.IntN(6) {
		case 0:
			delete(x, name)
		case 1:
			x[names[r.IntN(len(names))]] = x[name]
		default:
			x[name] = mutate(r, x[name])
		}
	}
	return v
}
