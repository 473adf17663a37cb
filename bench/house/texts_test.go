// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// root is the module's directory.
const root = "../.."

// noFaults checks that nothing is wrong with the repository's texts.
func noFaults(t *testing.T, find func(fs.FS) (faults []string, err error)) {
	t.Helper()
	faults, err := find(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range faults {
		t.Error(fault)
	}
}

// sources passes the repository's Go and Markdown files, in order.
func sources(fsys fs.FS, visit func(name, text string)) error {
	return fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name != "." && strings.HasPrefix(d.Name(), ".") && name != ".github" || name == "bench/out"):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".go" && path.Ext(name) != ".md" || strings.HasPrefix(name, "bench/house/") && name != "bench/house/doc.go":
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err == nil {
			visit(name, string(text))
		}
		return err
	})
}

// textsOf returns the same by name.
func textsOf(fsys fs.FS) (map[string]string, error) {
	texts := make(map[string]string)
	err := sources(fsys, func(name, text string) { texts[name] = text })
	return texts, err
}

// block is a block of code, or a comment, of a Markdown file.
var block = regexp.MustCompile("(?ms)^```.*?^```\n?|<!--.*?-->")

// proseOf returns a Markdown file with empty lines in the place of its blocks.
func proseOf(text string) string {
	return block.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) })
}

// lineOf returns the number of the line that an offset in a text is in.
func lineOf(text string, offset int) int { return 1 + strings.Count(text[:offset], "\n") }

// faultAt says what is wrong at an offset in the text of a file.
func faultAt(name, text string, offset int, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: ", name, lineOf(text, offset)) + fmt.Sprintf(format, args...)
}
