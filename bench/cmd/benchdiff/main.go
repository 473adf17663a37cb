// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Command benchdiff compares the working tree's hot benchmarks with another commit, on
// the current machine, and exits with 1 if the working tree is worse: a significant increase of
// time, or an additional allocation. It exits with 2 if the comparison fails.
//
// Both versions are built first, each from its own tree, and run alternately, many times and
// shortly, so that other load of the machine affects both alike. Each measurement is the
// minimum of a few. An increase of time must show twice: noise that lasted as long as one
// comparison does not repeat in the next. Binaries that are identical, as after a change of
// documentation elsewhere, are not run at all.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"github.com/xdslb/xdslb/bench/record"
)

type options struct {
	base, pattern, time string
	rounds              int
	force               bool
}

func main() {
	var o options
	flag.StringVar(&o.base, "base", "", "`commit` to compare with; default: where this branch left origin/main, or the previous commit")
	flag.StringVar(&o.pattern, "bench", "^BenchmarkHot$", "run the benchmarks that match a regular `expression`")
	flag.StringVar(&o.time, "benchtime", "4ms", "duration of each measurement")
	flag.IntVar(&o.rounds, "rounds", 20, "number of runs of each version, at least 8")
	flag.BoolVar(&o.force, "force", false, "also run identical binaries")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	lost, err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchdiff:", err)
		os.Exit(2)
	}
	if lost {
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (lost bool, err error) {
	if o.rounds < 8 {
		return false, fmt.Errorf("%d rounds: must be at least 8", o.rounds)
	}
	if o.base == "" {
		if o.base, err = defaultBase(ctx); err != nil {
			return false, err
		}
	}
	dir, err := os.MkdirTemp("", "benchdiff-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	tree := filepath.Join(dir, "base")
	if _, err := output(ctx, "", "git", "worktree", "add", "--detach", "--quiet", tree, o.base); err != nil {
		return false, err
	}
	defer func() {
		_, remove := output(context.WithoutCancel(ctx), "", "git", "worktree", "remove", "--force", tree)
		err = errors.Join(err, remove)
	}()
	base, head := filepath.Join(dir, "base.test"), filepath.Join(dir, "head.test")
	if err := build(ctx, tree, base); err != nil {
		return false, fmt.Errorf("build base: %w", err)
	}
	if err := build(ctx, "", head); err != nil {
		return false, err
	}
	if same, err := sameFile(base, head); err != nil {
		return false, err
	} else if same && !o.force {
		fmt.Printf("same binary as %s: nothing to compare\n", o.base)
		return false, nil
	}
	first, err := compare(ctx, o, base, head)
	if err != nil || first.allocating || len(first.slow) == 0 {
		return first.allocating, err
	}
	fmt.Println("once more, to be sure:")
	second, err := compare(ctx, o, base, head)
	if err != nil {
		return false, err
	}
	again := slices.ContainsFunc(second.slow, func(name string) bool { return slices.Contains(first.slow, name) })
	return again || second.allocating, nil
}

// defaultBase returns the commit where HEAD left the main branch, or the commit before HEAD if
// it did not.
func defaultBase(ctx context.Context) (string, error) {
	head, err := output(ctx, "", "git", "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	base, err := output(ctx, "", "git", "merge-base", "HEAD", "origin/main")
	if err != nil || base == head {
		dirty, err := output(ctx, "", "git", "status", "--porcelain", "--untracked-files=no")
		if err != nil || dirty != "" {
			return head, err
		}
		return output(ctx, "", "git", "rev-parse", "HEAD~1")
	}
	return base, nil
}

// build makes the test binary of ./bench in the module at dir. The binary does not depend on
// the module's location.
func build(ctx context.Context, dir, to string) error {
	_, err := output(ctx, dir, "go", "test", "-c", "-trimpath", "-buildvcs=false", "-o", to, "./bench")
	return err
}

// losers are the benchmarks that became worse.
type losers struct {
	slow       []string
	allocating bool
}

// compare runs both binaries alternately and prints the results.
func compare(ctx context.Context, o options, base, head string) (losers, error) {
	var found [2]map[string]*samples
	var order []string
	for i := range found {
		found[i] = make(map[string]*samples)
	}
	for round := range o.rounds {
		for turn := range 2 {
			which := (round + turn) % 2
			results, err := measure(ctx, []string{base, head}[which], o.pattern, o.time)
			if err != nil {
				return losers{}, err
			}
			for _, r := range results {
				s := found[which][r.Name()]
				if s == nil {
					s = &samples{}
					found[which][r.Name()] = s
					if which == 1 {
						order = append(order, r.Name())
					}
				}
				s.add(round, &r)
			}
		}
	}
	var l losers
	compared := 0
	for _, name := range order {
		b := found[0][name]
		if b == nil {
			fmt.Printf("%-32s new\n", name)
			continue
		}
		compared++
		v := judge(b, found[1][name])
		fmt.Printf("%-32s %v\n", name, v)
		if v.slower {
			l.slow = append(l.slow, name)
		}
		l.allocating = l.allocating || v.allocates
	}
	for name := range found[0] {
		if !slices.Contains(order, name) {
			fmt.Printf("%-32s gone\n", name)
		}
	}
	if compared == 0 {
		return losers{}, errors.New("no common benchmarks")
	}
	return l, nil
}

// measure runs a test binary once.
func measure(ctx context.Context, binary, pattern, time string) ([]record.Result, error) {
	out, err := output(ctx, "", binary, "-test.run", "^$", "-test.bench", pattern, "-test.benchtime", time, "-test.benchmem", "-test.cpu", "1",
		"-test.count", fmt.Sprint(repeats))
	if err != nil {
		return nil, err
	}
	rec, err := record.Read(strings.NewReader(out))
	if err != nil {
		return nil, err
	}
	return rec.Results, nil
}

func sameFile(a, b string) (bool, error) {
	x, err := os.ReadFile(a)
	if err != nil {
		return false, err
	}
	y, err := os.ReadFile(b)
	return bytes.Equal(x, y), err
}

// output runs a command in a directory and returns its output, trimmed.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out, problems bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(name), strings.Join(args, " "), err, out.Bytes(), problems.Bytes())
	}
	return strings.TrimSpace(out.String()), nil
}
