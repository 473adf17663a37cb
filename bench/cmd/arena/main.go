// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Command arena runs all fleets with all policies, and prints the results. See package arena.
//
// Runs are executed by copies of the program, one for each processor: time is virtual only in
// tests, so each copy is a test, and a run that crashes or hangs does not affect other runs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/bench/arena"
)

type options struct {
	seed             uint64
	fleets, policies string
	processes        int
	modes            string
	resume           bool
	from             string
	out, readme      string
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == workerArg {
		work()
		return
	}
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "seed of arrivals, events and random choices of policies")
	flag.StringVar(&o.fleets, "fleets", "", "run only fleets whose name matches a regular `expression`")
	flag.StringVar(&o.policies, "policies", "", "run only policies whose name matches a regular `expression`, and random and the oracle")
	flag.IntVar(&o.processes, "processes", runtime.NumCPU(), "number of concurrent runs")
	flag.StringVar(&o.modes, "modes", "", "run only modes that match a regular `expression`: channels, kernels, loopback")
	flag.BoolVar(&o.resume, "resume", false, "keep the results in the file of -o, and run the missing ones")
	flag.StringVar(&o.from, "from", "", "print the report in a `file` without running")
	flag.StringVar(&o.out, "o", "", "write the report to a `file`, in JSON")
	flag.StringVar(&o.readme, "readme", "", "write tables to a Markdown `file`, between the lines <!-- arena --> and <!-- end of arena -->")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "arena:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	var r *arena.Report
	var err error
	if o.from != "" {
		if r, err = read(o.from); err == nil {
			arena.Judge(r.Results)
		}
	} else {
		r, err = o.report(ctx)
	}
	if err != nil {
		return err
	}
	if err := o.save(r); err != nil {
		return err
	}
	if o.readme != "" {
		if err := publish(r, o.readme); err != nil {
			return err
		}
	}
	if err := r.Write(os.Stdout); err != nil {
		return err
	}
	if r.Partial {
		return fmt.Errorf("interrupted after %d runs: continue with -resume", len(r.Results))
	}
	return nil
}

// publish replaces the tables in a Markdown file.
func publish(r *arena.Report, file string) error {
	const begin, end = "<!-- arena -->\n", "<!-- end of arena -->\n"
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return fmt.Errorf("%s: missing lines %s and %s", file, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	var b strings.Builder
	b.WriteString(before + begin + "\n")
	if err := r.Markdown(&b); err != nil {
		return err
	}
	b.WriteString(fmt.Sprintf("\n`make arena`, seed %d, %s, %s, gRPC %s.\n\n", r.Seed, r.Date, r.Go, r.GRPC) + end + after)
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

// save writes the report to the file of -o, if set.
func (o *options) save(r *arena.Report) error {
	if o.out == "" {
		return nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(o.out+".new", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(o.out+".new", o.out)
}

func read(file string) (*arena.Report, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &arena.Report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

// report executes all runs: runs over loopback, which use real time, all at once and last. It
// saves each result immediately, since the process may be killed.
func (o *options) report(ctx context.Context) (*arena.Report, error) {
	cells, err := o.cells()
	if err != nil {
		return nil, err
	}
	r := &arena.Report{
		Go: runtime.Version(), GRPC: grpc.Version, Date: time.Now().UTC().Format(time.DateOnly),
		Machine: fmt.Sprintf("%s/%s, %d processors", runtime.GOOS, runtime.GOARCH, runtime.NumCPU()),
		Seed:    o.seed, Seeded: arena.Seeded, Fleets: arena.Describe(),
	}
	if commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output(); err == nil {
		r.Commit = strings.TrimSpace(string(commit))
	}
	var kept []*arena.Result
	if o.resume {
		if kept, err = o.kept(); err != nil {
			return nil, err
		}
		cells = slices.DeleteFunc(cells, func(c arena.Cell) bool {
			return slices.ContainsFunc(kept, func(r *arena.Result) bool { return r.Cell(o.seed) == c })
		})
	}
	real := func(c arena.Cell) bool { return c.Mode == arena.Loopback }
	virtual := slices.DeleteFunc(slices.Clone(cells), real)
	show := &progress{total: len(cells)}
	soFar := *r
	soFar.Partial, soFar.Results = true, slices.Clone(kept)
	each := func(c arena.Cell, x *arena.Result) error {
		show.step(c.String())
		soFar.Results = append(soFar.Results, x)
		return o.save(&soFar)
	}
	if r.Results, err = play(ctx, virtual, o.processes, each); err == nil && len(virtual) < len(cells) {
		var list []*arena.Result
		cells = slices.DeleteFunc(cells, func(c arena.Cell) bool { return !real(c) })
		list, err = play(ctx, cells, max(1, len(cells)), each)
		r.Results = append(r.Results, list...)
	}
	show.end()
	r.Results = append(kept, r.Results...)
	if err != nil && (len(r.Results) == 0 || ctx.Err() == nil) {
		return nil, err
	}
	r.Partial = err != nil // interrupted: partial results are still useful
	arena.Judge(r.Results)
	return r, nil
}

// kept returns the results of an earlier run that was interrupted.
func (o *options) kept() ([]*arena.Result, error) {
	r, err := read(o.out)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if r.Seed != o.seed || r.Seeded != arena.Seeded {
		return nil, fmt.Errorf("%s: seed differs", o.out)
	}
	return slices.DeleteFunc(r.Results, func(r *arena.Result) bool { return r.Error != "" }), nil
}

// cells returns the runs selected by the flags.
func (o *options) cells() ([]arena.Cell, error) {
	fleets, err := regexp.Compile(o.fleets)
	if err != nil {
		return nil, err
	}
	policies, err := regexp.Compile(o.policies)
	if err != nil {
		return nil, err
	}
	modes, err := regexp.Compile(o.modes)
	if err != nil {
		return nil, err
	}
	list := slices.DeleteFunc(arena.Cells(o.seed), func(c arena.Cell) bool {
		scale := c.Policy == string(arena.Anchor)+" "+arena.RandomName || c.Policy == string(arena.Anchor)+" "+arena.OracleName
		return !modes.MatchString(string(c.Mode)) || !fleets.MatchString(c.Fleet) || !scale && !policies.MatchString(c.Policy)
	})
	if len(list) == 0 {
		return nil, fmt.Errorf("no fleet matches %q with a policy that matches %q", o.fleets, o.policies)
	}
	return list, nil
}

// progress shows the progress: on a terminal in a single line, elsewhere with a line for each
// tenth.
type progress struct {
	done, total int
}

func (p *progress) step(what string) {
	p.done++
	if terminal() {
		fmt.Fprintf(os.Stderr, "\r\x1b[K%6d of %d  %s", p.done, p.total, what)
	} else if p.done*10/p.total != (p.done-1)*10/p.total {
		fmt.Fprintf(os.Stderr, "%6d of %d  %s\n", p.done, p.total, what)
	}
}

func (p *progress) end() {
	if terminal() {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
}

func terminal() bool {
	info, err := os.Stderr.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
