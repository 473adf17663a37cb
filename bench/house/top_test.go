// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"os"
	"slices"
	"testing"
)

// TestTopLevel: the folders at the top are the ones that ARCHITECTURE.md explains. What
// is new goes into one of them.
func TestTopLevel(t *testing.T) {
	folders := []string{".ci", ".git", ".github", "bench", "edf", "fuzz", "integrate", "internal", "picker", "ringhash", "xds"}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !slices.Contains(folders, e.Name()) {
			t.Errorf("there is a folder %s at the top", e.Name())
		}
	}
}
