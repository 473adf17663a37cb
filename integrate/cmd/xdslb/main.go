// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Command xdslb inspects xDS load balancing: running processes, control planes, and files with
// resources.
//
//	xdslb new -dns HOST:PORT        write a bootstrap and resources for a DNS name
//	xdslb check                     check the bootstrap, its files and its servers
//	xdslb attach ADDR [TARGET]      show the channels of a running process
//	xdslb explain TARGET METHOD     show where an RPC would go, and why
//	xdslb dump TARGET               print the resources of a target as JSON
//	xdslb version                   print the versions of xdslb, gRPC and Go
//	xdslb help [COMMAND]
//
// The exit code is 0 on success, 1 if a command found a problem or failed, and 2 for wrong usage.
// Results are written to standard output, everything else to standard error. With -o json, results
// are JSON.
//
// # Installation
//
// Until the first release, install it from a checkout, in its folder:
//
//	go install ./integrate/cmd/xdslb
//
// or build it in a module that requires xdslb, so that it has the versions of xdslb and gRPC that the
// programs of the module have:
//
//	go build -o xdslb github.com/xdslb/xdslb/integrate/cmd/xdslb
//
// With CGO_ENABLED=0, GOOS and GOARCH, the result is a static binary that can be copied into a container.
// "xdslb version" prints the versions.
//
// # Files
//
//	main.go        run, the commands, help
//	flags.go       flags that commands share
//	fetch.go       dump: resources of a control plane, without connections to endpoints
//	remote.go      the status of a running process, by its debug page, with TLS
//	new.go, check.go, attach.go, explain.go   commands; help and version are in main.go
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/integrate/internal/sanitize"
	"github.com/xdslb/xdslb/integrate/internal/statustext"
)

// Exit codes.
const (
	exitOK = iota
	exitFinding
	exitUsage
)

// env is the environment of a command.
type env struct {
	ctx            context.Context
	stdout, stderr io.Writer
	now            func() time.Time
	terminal       bool // stdout is a terminal
	json           bool // -o json
}

// A command is a subcommand.
type command struct {
	name, args, summary string
	about, example      string
	// flags registers the command's flags. It returns a function that runs the command with the
	// remaining arguments and reports whether it found a problem.
	flags func(e *env, fs *flag.FlagSet) func(args []string) (found bool, err error)
}

// commands are the commands in the order of help.
var commands = []command{newCommand, checkCommand, attachCommand, explainCommand, dumpCommand, versionCommand}

// usageError is an error in the arguments.
type usageError string

func (e usageError) Error() string { return string(e) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	info, err := os.Stdout.Stat()
	e := &env{ctx: ctx, stdout: os.Stdout, stderr: os.Stderr, now: time.Now, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0}
	code := e.run(os.Args[1:])
	stop()
	os.Exit(code)
}

// output writes results and keeps the first error.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	o.err = cmp.Or(o.err, err)
	return n, err
}

// run runs a command, and returns the exit code.
func (e *env) run(args []string) int {
	out := &output{Writer: e.stdout}
	e.stdout = out
	code := e.choose(args)
	if out.err != nil {
		fmt.Fprintf(e.stderr, "xdslb: incomplete results: %v\n", out.err)
		return exitFinding
	}
	return code
}

// choose runs the command that the arguments name.
func (e *env) choose(args []string) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" || args[0] == "-help" {
		return e.help(args)
	}
	if args[0] == "-version" || args[0] == "--version" {
		args[0] = versionCommand.name
	}
	for _, c := range commands {
		if c.name == args[0] {
			return e.runCommand(&c, args[1:])
		}
	}
	fmt.Fprintf(e.stderr, "xdslb: unknown command %q: see xdslb help\n", args[0])
	return exitUsage
}

func (e *env) runCommand(c *command, args []string) int {
	fs := newFlagSet(c, e)
	run := c.flags(e, fs)
	left, err := parse(fs, args)
	if errors.Is(err, flag.ErrHelp) {
		return e.help([]string{"help", c.name})
	}
	found := false
	if err != nil {
		err = usageError(err.Error())
	} else {
		found, err = run(left)
	}
	var usage usageError
	switch {
	case errors.As(err, &usage):
		fmt.Fprintf(e.stderr, "xdslb %s: %s\nusage: xdslb %s\n", c.name, shown(err), strings.TrimSpace(c.name+" "+c.args))
		return exitUsage
	case err != nil && e.ctx.Err() == nil:
		fmt.Fprintf(e.stderr, "xdslb %s: %s\n", c.name, shown(err))
		return exitFinding
	case found:
		return exitFinding
	}
	return exitOK
}

// shown returns the text of an error without the prefix that the command prints, and with control
// characters escaped.
func shown(err error) string {
	lines := strings.Split(strings.TrimPrefix(err.Error(), "xdslb: "), "\n")
	for i := range lines {
		lines[i] = sanitize.Text(lines[i], 0)
	}
	return strings.Join(lines, "\n")
}

// newFlagSet returns the flag set of a command with the flags of all commands.
func newFlagSet(c *command, e *env) *flag.FlagSet {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Func("o", "`format` of the output: text or json", func(s string) error {
		if s != "text" && s != "json" {
			return errors.New("want text or json")
		}
		e.json = s == "json"
		return nil
	})
	return fs
}

// parse parses flags at any position, and returns the other arguments.
func parse(fs *flag.FlagSet, args []string) (left []string, err error) {
	for {
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		if fs.NArg() == 0 {
			return left, nil
		}
		ended := len(args) > fs.NArg() && args[len(args)-fs.NArg()-1] == "--"
		if ended {
			return append(left, fs.Args()...), nil
		}
		left, args = append(left, fs.Arg(0)), fs.Args()[1:]
	}
}

// help prints the list of commands, or the help of one.
func (e *env) help(args []string) int {
	if len(args) < 2 || strings.HasPrefix(args[1], "-") {
		fmt.Fprint(e.stdout, "xdslb inspects xDS load balancing.\n\n")
		for _, c := range commands {
			fmt.Fprintf(e.stdout, "  xdslb %-25s %s\n", c.name+" "+c.args, c.summary)
		}
		fmt.Fprint(e.stdout, "  xdslb help [COMMAND]            show the help of a command, with an example\n\n"+
			"Exit codes: 0 success, 1 problem found or failure, 2 wrong usage.\n")
		if len(args) == 0 {
			return exitUsage
		}
		return exitOK
	}
	for _, c := range commands {
		if c.name == args[1] {
			e.helpCommand(&c)
			return exitOK
		}
	}
	fmt.Fprintf(e.stderr, "xdslb: unknown command %q: see xdslb help\n", args[1])
	return exitUsage
}

func (e *env) helpCommand(c *command) {
	fmt.Fprintf(e.stdout, "usage: xdslb %s [flags]\n\n", strings.TrimSpace(c.name+" "+c.args))
	statustext.Wrap(e.stdout, "", c.about)
	fmt.Fprint(e.stdout, "\nFlags:\n")
	fs := newFlagSet(c, &env{})
	c.flags(&env{}, fs)
	fs.VisitAll(func(f *flag.Flag) {
		name, text := flag.UnquoteUsage(f)
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" {
			text += " (default " + f.DefValue + ")"
		}
		statustext.Wrap(e.stdout, fmt.Sprintf("  -%-18s", strings.TrimSpace(f.Name+" "+name)), text)
	})
	fmt.Fprintf(e.stdout, "\nExample:\n  %s\n", strings.ReplaceAll(c.example, "\n", "\n  "))
}

// printJSON prints a result as JSON.
func (e *env) printJSON(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := e.stdout.Write(sanitize.JSON(b.Bytes()))
	return err
}

// progress prints a message if an operation takes more than a second. The caller calls done at its
// end.
func (e *env) progress(format string, args ...any) (done func()) {
	timer := time.AfterFunc(time.Second, func() { fmt.Fprintf(e.stderr, "xdslb: "+format+" …\n", args...) })
	return func() { timer.Stop() }
}

var versionCommand = command{
	name: "version", args: "", summary: "print the versions of xdslb, gRPC and Go",
	about:   "Prints the version or commit of xdslb, and the versions of gRPC and Go.",
	example: "xdslb version",
	flags: func(e *env, _ *flag.FlagSet) func([]string) (bool, error) {
		return func(args []string) (bool, error) {
			if err := want(args); err != nil {
				return false, err
			}
			v := struct {
				Version string `json:"version"`
				Commit  string `json:"commit,omitempty"`
				GRPC    string `json:"grpc"`
				Go      string `json:"go"`
			}{"unknown", "", grpc.Version, runtime.Version()}
			if info, ok := debug.ReadBuildInfo(); ok {
				v.Version = info.Main.Version
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						v.Commit = s.Value
					}
				}
			}
			if e.json {
				return false, e.printJSON(v)
			}
			fmt.Fprintf(e.stdout, "xdslb %s\ngrpc %s\n%s\n", strings.TrimSpace(v.Version+" "+v.Commit), v.GRPC, v.Go)
			return false, nil
		}
	},
}
