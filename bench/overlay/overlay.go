// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package overlay gives benchmarks access to internals of grpc-go. It makes a copy of grpc-go
// with three additional files that export the measured internals and change nothing, a go.mod
// that builds the project against the copy, and one more file for package bench, which uses
// the exports:
//
//	go test -modfile <dir>/go.mod -overlay <dir>/overlay.json -bench . ./bench
//
// Benchmarks without the overlay leave out the config selector, which takes half of stock's
// time for an RPC, and stock's ring, EDF and decoder.
package overlay

import (
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed files/*.txt
var files embed.FS

// benchFile is the file for package bench.
const benchFile = "files/bench_test.go.txt"

// exports maps the other files to their paths in the copy of grpc-go.
var exports = map[string]string{
	"files/grpc.go.txt":     "zz_export.go",
	"files/ringhash.go.txt": "balancer/ringhash/zz_export.go",
	"files/export.go.txt":   "benchexport/export.go",
}

// Prepare makes the copy in the directory dir, unless it exists, and returns the flags with
// which the go command uses it for the module at root. It writes nothing in root.
func Prepare(root, dir string) (flags []string, err error) {
	list := exec.Command("go", "list", "-m", "-json", "google.golang.org/grpc")
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("overlay: %w", err)
	}
	var mod struct{ Version, Dir string }
	if err := json.Unmarshal(out, &mod); err != nil {
		return nil, fmt.Errorf("overlay: %w", err)
	}
	if mod.Dir == "" {
		return nil, fmt.Errorf("overlay: grpc-go %s is not in the module cache; run go mod download", mod.Version)
	}
	tree := filepath.Join(dir, "grpc-go-"+mod.Version)
	if err := install(tree, mod.Dir); err != nil {
		return nil, fmt.Errorf("overlay: %w", err)
	}
	modfile, overlayFile := filepath.Join(dir, "go.mod"), filepath.Join(dir, "overlay.json")
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, fmt.Errorf("overlay: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return nil, fmt.Errorf("overlay: %w", err)
		}
	}
	edit := exec.Command("go", "mod", "edit", "-replace=google.golang.org/grpc="+tree, modfile)
	edit.Stderr = os.Stderr
	if err := edit.Run(); err != nil {
		return nil, fmt.Errorf("overlay: %w", err)
	}
	text, err := files.ReadFile(benchFile)
	if err != nil {
		return nil, fmt.Errorf("overlay: %w", err)
	}
	file := filepath.Join(dir, "overlay_test.go")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return nil, fmt.Errorf("overlay: %w", err)
	}
	var replace struct{ Replace map[string]string }
	replace.Replace = map[string]string{filepath.Join(root, "bench", "overlay_test.go"): file}
	if text, err = json.Marshal(replace); err != nil {
		return nil, fmt.Errorf("overlay: %w", err)
	}
	if err := os.WriteFile(overlayFile, text, 0o644); err != nil {
		return nil, fmt.Errorf("overlay: %w", err)
	}
	return []string{"-modfile", modfile, "-overlay", overlayFile}, nil
}

// install copies the directory from to tree, unless tree exists, and adds the exports.
func install(tree, from string) error {
	if _, err := os.Stat(tree); err != nil {
		scratch, err := os.MkdirTemp(filepath.Dir(tree), "copy-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(scratch) }() // it does not exist if the rename succeeded
		if err := os.CopyFS(scratch, os.DirFS(from)); err != nil {
			return err
		}
		if err := os.Rename(scratch, tree); err != nil {
			return err
		}
	}
	for name, place := range exports {
		text, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		file := filepath.Join(tree, place)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
