// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Command xdslb looks at xDS load balancing from outside: at a running process, at what a
// control plane says, or at resources in a file.
//
//	xdslb check                     is the bootstrap file usable, and its servers reachable?
//	xdslb attach ADDR               what do the channels of a running process do?
//	xdslb watch TARGET              the same for a channel of its own
//	xdslb explain TARGET METHOD     where would an RPC go, and why nowhere else?
//	xdslb pick TARGET               make picks, and count where they go
//	xdslb dump TARGET               print the resources of a target as JSON
//	xdslb diff A B -target TARGET   what changes for RPCs between two files of resources?
//	xdslb completion SHELL          completion for bash, zsh or fish
//	xdslb help [COMMAND]
//
// It exits with 0 if all is well, with 1 if it has found something or could not do what it
// was asked to, and with 2 if it was called wrongly. Results go to standard output, all else
// to standard error. With -o json the results are JSON.
//
// # Files
//
//	main.go        run, the commands, help
//	flags.go       flags that commands share; where resources come from
//	fetch.go       resources of a control plane, without a connection to an endpoint
//	tls.go         TLS to a process that is asked
//	csds.go        what a process's CSDS says
//	check.go, attach.go, explain.go, pick.go, diff.go, completion.go   the commands
//	statustext.go  a channel as text
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/xdslb/xdslb/integrate/internal/sanitize"
)

// Exit codes.
const (
	exitOK = iota
	exitFinding
	exitUsage
)

// env is what a command has of the world.
type env struct {
	ctx            context.Context
	stdout, stderr io.Writer
	now            func() time.Time
	terminal       bool // stdout is one
	json           bool // -o json
}

// A command is one of the commands.
type command struct {
	name, args, summary string
	about, example      string
	// flags registers the command's flags, and returns what runs it with the arguments
	// that are left. That returns whether it has found something.
	flags func(e *env, fs *flag.FlagSet) func(args []string) (found bool, err error)
}

// commands returns the commands in the order of help. It is no variable, since some of them
// go through it.
func commands() []command {
	return []command{checkCommand, attachCommand, watchCommand, explainCommand, pickCommand, dumpCommand, diffCommand, completionCommand}
}

// usageError is an error of whoever called.
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

// output is where results go. It remembers that some could not be written, to a disk that is
// full for instance.
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
		fmt.Fprintf(e.stderr, "xdslb: the results are not complete: %v\n", out.err)
		return exitFinding
	}
	return code
}

// choose runs the command that the arguments name.
func (e *env) choose(args []string) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" || args[0] == "-help" {
		return e.help(args)
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return e.runCommand(&c, args[1:])
		}
	}
	fmt.Fprintf(e.stderr, "xdslb: there is no command %q: see xdslb help\n", args[0])
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

// shown is what a terminal shows of an error, whoever has written what is in it.
func shown(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i := range lines {
		lines[i] = sanitize.Text(lines[i], 0)
	}
	return strings.Join(lines, "\n")
}

// newFlagSet returns a command's flag set with the flags that all have.
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

// parse parses flags wherever they are, and returns the arguments between them.
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

// help prints what there is, or what a command does.
func (e *env) help(args []string) int {
	if len(args) < 2 {
		fmt.Fprint(e.stdout, "xdslb looks at xDS load balancing from outside.\n\n")
		for _, c := range commands() {
			fmt.Fprintf(e.stdout, "  xdslb %-24s %s\n", c.name+" "+c.args, c.summary)
		}
		fmt.Fprint(e.stdout, "  xdslb help [COMMAND]           more about a command, with an example\n\n"+
			"Exit codes: 0 all is well, 1 something was found or failed, 2 wrong usage.\n")
		if len(args) == 0 {
			return exitUsage
		}
		return exitOK
	}
	for _, c := range commands() {
		if c.name == args[1] {
			e.helpCommand(&c)
			return exitOK
		}
	}
	fmt.Fprintf(e.stderr, "xdslb: there is no command %q: see xdslb help\n", args[1])
	return exitUsage
}

func (e *env) helpCommand(c *command) {
	fmt.Fprintf(e.stdout, "usage: xdslb %s [flags]\n\n", strings.TrimSpace(c.name+" "+c.args))
	wrap(e.stdout, "", c.about)
	fmt.Fprint(e.stdout, "\nFlags:\n")
	fs := newFlagSet(c, &env{})
	c.flags(&env{}, fs)
	fs.VisitAll(func(f *flag.Flag) {
		name, text := flag.UnquoteUsage(f)
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" {
			text += " (default " + f.DefValue + ")"
		}
		wrap(e.stdout, fmt.Sprintf("  -%-18s", strings.TrimSpace(f.Name+" "+name)), text)
	})
	fmt.Fprintf(e.stdout, "\nExample:\n  %s\n", strings.ReplaceAll(c.example, "\n", "\n  "))
}

// columns is how wide text is.
const columns = 80

// wrap prints text after a head, broken into lines that begin below its own first one.
func wrap(w io.Writer, head, text string) {
	if head != "" {
		head += " "
	}
	indent := strings.Repeat(" ", utf8.RuneCountInString(head))
	line, begun := head, false
	for _, word := range strings.Fields(text) {
		if begun && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > columns {
			fmt.Fprintln(w, line)
			line, begun = indent, false
		}
		if begun {
			line += " "
		}
		line, begun = line+word, true
	}
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}

// printJSON prints a result as JSON.
func (e *env) printJSON(v any) error {
	enc := json.NewEncoder(e.stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// progress says what is waited for, once that takes more than a second. The caller calls
// done when it is over.
func (e *env) progress(format string, args ...any) (done func()) {
	said := time.AfterFunc(time.Second, func() { fmt.Fprintf(e.stderr, "xdslb: "+format+" …\n", args...) })
	return func() { said.Stop() }
}
