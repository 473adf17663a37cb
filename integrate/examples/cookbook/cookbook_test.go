// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package cookbook

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

var write = flag.Bool("update", false, "write the JSON of the page from the functions of this package")

const page = "../../docs/cookbook.md"

// A recipe is an example of the page.
type recipe struct {
	name string // of the function that returns message
	// row is the first cell of the rows of supported.md that the example shows, or a part of it.
	row     string
	message proto.Message
	effect  func(w *world) // puts what the example needs besides, dials, and verifies the effect
}

var recipes = slices.Concat(routeRecipes, listenerRecipes, clusterRecipes, policyRecipes, endpointRecipes)

// block is an example on the page: a link to its function, a description, and its JSON.
var block = regexp.MustCompile("(?m)^Go: \\[`(\\w+)`\\]\\(\\.\\./examples/cookbook/\\w+\\.go\\)\n\n```json\n((?s:.*?))```\n")

// TestCookbook loads the JSON of each example on the page into a control plane, in a world of its
// own, and verifies the effect on RPCs.
func TestCookbook(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if *write {
		text = updated(t, text)
	}
	examples := map[string]string{}
	for _, m := range block.FindAllSubmatch(text, -1) {
		examples[string(m[1])] = string(m[2])
	}
	// Package net makes a channel at the first lookup, which must not belong to a bubble.
	if _, err := net.DefaultResolver.LookupHost(t.Context(), "localhost"); err != nil {
		t.Fatal(err)
	}
	for _, r := range recipes {
		t.Run(r.name, func(t *testing.T) {
			example, ok := examples[r.name]
			if !ok {
				t.Fatalf("%s has no example %s", page, r.name)
			}
			var a anypb.Any
			if err := protojson.Unmarshal([]byte(example), &a); err != nil {
				t.Fatal(err)
			}
			m, err := a.UnmarshalNew()
			if err != nil {
				t.Fatal(err)
			}
			if want := formatted(t, r.message); example != want {
				t.Errorf("the page has\n%s\nand the function returns\n%s\nRun: go test ./integrate/examples/cookbook -update", example, want)
			}
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.update(m)
				r.effect(w)
			})
		})
	}
	for name := range examples {
		if !slices.ContainsFunc(recipes, func(r recipe) bool { return r.name == name }) {
			t.Errorf("no test loads example %s", name)
		}
	}
}

// TestRows: each feature of supported.md that a control plane can switch on has an example.
func TestRows(t *testing.T) {
	text, err := os.ReadFile("../../docs/supported.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range []string{"Listeners", "Routes", "Clusters", "LB policies", "Endpoints"} {
		_, table, ok := strings.Cut(string(text), "\n## "+section+"\n")
		if !ok {
			t.Errorf("supported.md has no section %s", section)
		}
		table, _, _ = strings.Cut(table, "\n## ")
		for row := range strings.Lines(table) {
			if strings.Contains(row, "`api_listener`") || strings.Contains(row, "equivalent to `lb_endpoints`") {
				continue // part of every example, and another form of one
			}
			cells := strings.Split(row, "|")
			if len(cells) < 4 || !strings.HasPrefix(strings.TrimSpace(cells[2]), "yes") {
				continue
			}
			if !slices.ContainsFunc(recipes, func(r recipe) bool { return r.row != "" && strings.Contains(cells[1], r.row) }) {
				t.Errorf("no example of %s: %s", section, strings.TrimSpace(cells[1]))
			}
		}
	}
}

// updated returns the page with the JSON of the functions.
func updated(t *testing.T, text []byte) []byte {
	t.Helper()
	for _, r := range recipes {
		begin := fmt.Sprintf("Go: [`%s`]", r.name)
		i := bytes.Index(text, []byte(begin))
		if i < 0 {
			continue
		}
		m := block.FindSubmatchIndex(text[i:])
		if m == nil || m[0] != 0 {
			t.Fatalf("no JSON behind %s", begin)
		}
		text = slices.Concat(text[:i+m[4]], []byte(formatted(t, r.message)), text[i+m[5]:])
	}
	if err := os.WriteFile(page, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return text
}

// formatted returns a resource as JSON, with the fields' names as in Envoy's documentation. Objects
// and lists that fit are on one line.
func formatted(t *testing.T, m proto.Message) string {
	t.Helper()
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(anyOf(m))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	layOut(&out, text, "", 0)
	return out.String() + "\n"
}

// layOut writes a JSON value that begins in a column of a line with an indent.
func layOut(out *strings.Builder, value json.RawMessage, indent string, column int) {
	line := oneLine(value)
	if column+len(line) <= 118 && indent != "" || value[0] != '{' && value[0] != '[' {
		out.WriteString(line)
		return
	}
	d := json.NewDecoder(bytes.NewReader(value))
	open, _ := d.Token()
	fmt.Fprint(out, open)
	inner := indent + "  "
	for first := true; d.More(); first = false {
		if !first {
			out.WriteByte(',')
		}
		out.WriteString("\n" + inner)
		column := len(inner)
		if open == json.Delim('{') {
			key, _ := d.Token()
			head := fmt.Sprintf("%q: ", key)
			out.WriteString(head)
			column += len(head)
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			panic(err) // protojson writes valid JSON
		}
		layOut(out, v, inner, column)
	}
	end, _ := d.Token()
	out.WriteString("\n" + indent + fmt.Sprint(end))
}

// oneLine returns a JSON value with a space behind each colon and comma.
func oneLine(value json.RawMessage) string {
	var compact bytes.Buffer
	if err := json.Compact(&compact, value); err != nil {
		panic(err) // protojson writes valid JSON
	}
	var out strings.Builder
	inString := false
	for i, c := range compact.String() {
		out.WriteRune(c)
		if c == '"' && (i == 0 || compact.Bytes()[i-1] != '\\') {
			inString = !inString
		}
		if !inString && (c == ':' || c == ',') {
			out.WriteByte(' ')
		}
	}
	return out.String()
}
