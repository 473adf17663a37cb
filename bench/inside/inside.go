// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package inside lets benchmarks look inside grpc-go: it makes a copy of it
// with a door, three files that export what is measured and change nothing, a
// go.mod that builds the project against the copy, and one more file for package
// bench, which uses the door:
//
//	go test -modfile <dir>/go.mod -overlay <dir>/overlay.json -bench . ./bench
//
// Without it the benchmarks have to leave out the config selector, which takes
// half of stock's time for an RPC, and stock's ring, EDF and decoder.
package inside

import (
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed door/*.txt
var door embed.FS

// user is the file for package bench.
const user = "door/bench_test.go.txt"

// places says where in grpc-go the other files go.
var places = map[string]string{
	"door/grpc.go.txt":     "zz_door.go",
	"door/ringhash.go.txt": "balancer/ringhash/zz_door.go",
	"door/door.go.txt":     "door/door.go",
}

// Prepare makes the copy in the directory dir, unless it is there, and returns
// the flags that make the go command use it for the module at root. Nothing in
// root is written.
func Prepare(root, dir string) (flags []string, err error) {
	list := exec.Command("go", "list", "-m", "-json", "google.golang.org/grpc")
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("inside: %w", err)
	}
	var mod struct{ Version, Dir string }
	if err := json.Unmarshal(out, &mod); err != nil {
		return nil, fmt.Errorf("inside: %w", err)
	}
	if mod.Dir == "" {
		return nil, fmt.Errorf("inside: grpc-go %s is not in the module cache; run go mod download", mod.Version)
	}
	tree := filepath.Join(dir, "grpc-"+mod.Version)
	if err := install(tree, mod.Dir); err != nil {
		return nil, fmt.Errorf("inside: %w", err)
	}
	modfile, overlay := filepath.Join(dir, "go.mod"), filepath.Join(dir, "overlay.json")
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, fmt.Errorf("inside: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return nil, fmt.Errorf("inside: %w", err)
		}
	}
	edit := exec.Command("go", "mod", "edit", "-replace=google.golang.org/grpc="+tree, modfile)
	edit.Stderr = os.Stderr
	if err := edit.Run(); err != nil {
		return nil, fmt.Errorf("inside: %w", err)
	}
	text, err := door.ReadFile(user)
	if err != nil {
		return nil, fmt.Errorf("inside: %w", err)
	}
	file := filepath.Join(dir, "inside_test.go")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return nil, fmt.Errorf("inside: %w", err)
	}
	var replace struct{ Replace map[string]string }
	replace.Replace = map[string]string{filepath.Join(root, "bench", "inside_test.go"): file}
	if text, err = json.Marshal(replace); err != nil {
		return nil, fmt.Errorf("inside: %w", err)
	}
	if err := os.WriteFile(overlay, text, 0o644); err != nil {
		return nil, fmt.Errorf("inside: %w", err)
	}
	return []string{"-modfile", modfile, "-overlay", overlay}, nil
}

// install copies the tree at from to tree if it is not there, and puts the door
// in.
func install(tree, from string) error {
	if _, err := os.Stat(tree); err != nil {
		scratch, err := os.MkdirTemp(filepath.Dir(tree), "copy-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(scratch) }() // there is nothing left of it if all went well
		if err := os.CopyFS(scratch, os.DirFS(from)); err != nil {
			return err
		}
		if err := os.Rename(scratch, tree); err != nil {
			return err
		}
	}
	for name, place := range places {
		text, err := door.ReadFile(name)
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
