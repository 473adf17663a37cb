// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/arena"
)

// workerArg makes the program a worker: it reads cells, and writes results.
const workerArg = "-worker"

// patience is the timeout of a run.
const patience = 5 * time.Minute

// work is the main function of a worker. testing.Main, which exits, is for programs without the
// go command.
func work() {
	out := json.NewEncoder(os.Stdout)
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	os.Stdout, os.Args = os.Stderr, os.Args[:1] // the output of tests must not mix with results
	all := func(string, string) (bool, error) { return true, nil }
	testing.Main(all, []testing.InternalTest{{Name: "cells", F: func(t *testing.T) {
		var c arena.Cell
		for in.Decode(&c) == nil && !t.Failed() {
			t.Run(c.String(), func(t *testing.T) { _ = out.Encode(arena.Play(t, c)) }) // the reader detects a missing result
		}
		os.Exit(0) // without the summary of tests
	}}}, nil, nil)
}

// play runs the cells in processes, and calls each with every result, one after the other. If
// it is interrupted, it returns the available results and the error.
func play(ctx context.Context, cells []arena.Cell, processes int, each func(arena.Cell, *arena.Result) error) ([]*arena.Result, error) {
	todo := make(chan int)
	results := make([]*arena.Result, len(cells))
	var mu sync.Mutex // guards results and fault, and is held while each is called
	var fault error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var workers sync.WaitGroup
	for range min(processes, len(cells)) {
		workers.Go(func() {
			w := &worker{}
			defer w.stop()
			for i := range todo {
				r, err := w.play(ctx, cells[i])
				mu.Lock()
				if results[i] = r; r != nil {
					err = each(cells[i], r)
				}
				if err != nil && fault == nil {
					fault = err
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	for i := range cells {
		select {
		case todo <- i:
		case <-ctx.Done():
		}
	}
	close(todo)
	workers.Wait()
	if fault == nil {
		fault = ctx.Err()
	}
	return slices.DeleteFunc(results, func(r *arena.Result) bool { return r == nil }), fault
}

// A worker is a copy of the program, started when it is first needed.
type worker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// play returns the result of a cell, with Error set if the copy crashes. The error means that a
// copy cannot be started.
func (w *worker) play(ctx context.Context, c arena.Cell) (*arena.Result, error) {
	if w.cmd == nil {
		if err := w.start(); err != nil {
			return nil, err
		}
	}
	process := w.cmd.Process
	kill := func() { _ = process.Kill() } // it may have ended
	defer time.AfterFunc(patience, kill).Stop()
	defer context.AfterFunc(ctx, kill)()
	r := &arena.Result{}
	err := json.NewEncoder(w.in).Encode(c)
	if err == nil {
		err = w.out.Decode(r)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		how := w.stop()
		impl, name, _ := strings.Cut(c.Policy, " ")
		return &arena.Result{Fleet: c.Fleet, Impl: arena.Impl(impl), Policy: name, Mode: c.Mode, Long: c.Long, Error: fmt.Sprintf("run did not end: %v (%v)", err, how)}, nil
	}
	return r, nil
}

func (w *worker) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	w.cmd = exec.Command(self, workerArg)
	// A run is mostly sequential, and garbage collection mostly scans the stacks of thousands
	// of goroutines.
	w.cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=200")
	w.cmd.Stderr = os.Stderr
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	w.out = json.NewDecoder(out)
	return w.cmd.Start()
}

// stop ends the copy, which is idle or has crashed, and returns how it ended.
func (w *worker) stop() (how string) {
	if w.cmd == nil {
		return ""
	}
	_ = w.in.Close()
	_ = w.cmd.Wait() // the process state has the result
	how = w.cmd.ProcessState.String()
	w.cmd = nil
	return how
}
