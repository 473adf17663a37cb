// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package doccheck

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// plain lists the directories whose non-test comments must be in plain English. Subdirectories
// are included.
var plain = []string{
	"bench", "edf", "fuzz", "picker", "ringhash", "xds",
	"integrate/attemptlabels", "integrate/cmd", "integrate/debug", "integrate/examples", "integrate/probe",
	"integrate/report", "integrate/stockmetrics",
	"integrate/internal/balancer", "integrate/internal/channelmetrics", "integrate/internal/compare", "integrate/internal/counters", "integrate/internal/diagnosis",
	"integrate/internal/explain", "integrate/internal/link",
	"integrate/internal/metadatautil", "integrate/internal/methodconfig", "integrate/internal/metric",
	"integrate/internal/offline", "integrate/internal/orcaweight", "integrate/internal/outlier",
	"integrate/internal/rollout", "integrate/internal/rpc", "integrate/internal/sanitize",
	"integrate/internal/serial", "integrate/internal/statustext", "integrate/internal/xdstls",
}

// plainTests lists the directories whose tests must be in plain English too. Subdirectories are
// included.
var plainTests = []string{"bench", "edf", "fuzz", "integrate", "picker", "ringhash", "xds"}

// unclear matches forms that grpc-go and the standard library do not use: sentences that start
// with a relative clause, words that have a clearer synonym, and private words for RPCs and events.
var unclear = regexp.MustCompile(`(?:^|[.!?]\s+)(?:What|Who|Whoever|Of which|Of what)\b[^?]*?(?:[.!]\s|$)|` +
	`(?i:\b(?:whoever|anew|nobody|in vain|mended|for want of|is for when|takes? note of|` +
	`flights|aloft|volleys?|crossroads?|ordeals?|sleepers|overslept|sluggish|moody)\b)`)

// perWords limits the frequency of words, by occurrences in 10,000 words of all plain directories
// together. In grpc-go, net and connect-go these words are ten times rarer.
var perWords = map[string]float64{"what": 8, "says": 3, "those": 8, "none": 4, "others": 3}

// perTestWords are the limits for tests.
var perTestWords = map[string]float64{"what": 8, "says": 3, "those": 8}

// TestEnglish checks the comments of plain directories for unclear forms and overused words.
func TestEnglish(t *testing.T) {
	texts := textsOf(t, os.DirFS(root))
	for kind, of := range map[string]struct {
		dirs   []string
		tests  bool
		limits map[string]float64
	}{"code": {plain, false, perWords}, "tests": {plainTests, true, perTestWords}} {
		faults, counts, total := unclearComments(t, texts, of.dirs, of.tests)
		for _, fault := range faults {
			t.Error(fault)
		}
		for _, word := range slices.Sorted(maps.Keys(of.limits)) {
			if got := 1e4 * float64(counts[word]) / float64(total); got > of.limits[word] {
				t.Errorf("%s: %q occurs %.1f times in 10,000 words, want at most %.0f", kind, word, got, of.limits[word])
			}
		}
	}
}

// TestUnclearComments checks that each unclear form is reported, and that plain text is not.
func TestUnclearComments(t *testing.T) {
	text := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	const bad = "package a\n\n// What is new.\n\n// T is. Who calls it waits.\ntype T int\n\n" +
		"var x = 1 // made anew\n\n// It is\n// in vain.\n\n// Of which one is left.\n"
	texts := textsOf(t, fstest.MapFS{
		"a/a.go":      text(bad),
		"a/b/b.go":    text("package b // nobody\n"),
		"a/c.go":      text("package a\n\n// What is it? Whose is it? It is what those want.\n\nvar s = \"What is anew.\"\n"),
		"a/a_test.go": text(bad),
		"ab/a.go":     text(bad),
	})
	if faults, _, _ := unclearComments(t, texts, []string{"a"}, true); len(faults) != 5 {
		t.Errorf("faults in tests: %q, want 5", faults)
	}
	faults, counts, total := unclearComments(t, texts, []string{"a"}, false)
	for i, fault := range faults {
		faults[i] = strings.Join(strings.SplitN(fault, ":", 3)[:2], ":")
	}
	if want := []string{"a/a.go:3", "a/a.go:5", "a/a.go:8", "a/a.go:10", "a/a.go:13", "a/b/b.go:1"}; !slices.Equal(faults, want) {
		t.Errorf("faults at %q, want %q", faults, want)
	}
	if counts["what"] != 3 || counts["those"] != 1 || total != 31 {
		t.Errorf("counts %v of %d words, want 3 what and 1 those of 31", counts, total)
	}
}

// unclearComments returns the unclear forms in the comments of directories, of their tests or of other files, the number of
// occurrences of each word of perWords, and the total number of words.
func unclearComments(t *testing.T, texts map[string]string, dirs []string, tests bool) (faults []string, counts map[string]int, total int) {
	counts = map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		below := func(dir string) bool { return strings.HasPrefix(name, dir+"/") }
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") != tests || !slices.ContainsFunc(dirs, below) {
			continue
		}
		for line, comment := range comments(t, name, texts[name]) {
			for _, form := range unclear.FindAllString(comment, -1) {
				faults = append(faults, fmt.Sprintf("%s:%d: unclear: %q", name, line, strings.TrimSpace(form)))
			}
			for _, word := range regexp.MustCompile(`[A-Za-z][a-z']+`).FindAllString(comment, -1) {
				total++
				if word = strings.ToLower(word); perWords[word] > 0 {
					counts[word]++
				}
			}
		}
	}
	return faults, counts, total
}

// comments returns an iterator over the comments of a Go file without its copyright notice, each
// as one line of text, with line numbers.
func comments(t *testing.T, name, text string) func(func(int, string) bool) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(int, string) bool) {
		for _, group := range slices.DeleteFunc(file.Comments, func(g *ast.CommentGroup) bool { return strings.HasPrefix(g.Text(), "Copyright") }) {
			if !yield(fset.Position(group.Pos()).Line, strings.Join(strings.Fields(group.Text()), " ")) {
				return
			}
		}
	}
}
