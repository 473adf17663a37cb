// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/picker"
)

// bootstrapFlag has the flags -b, -delta and -hostnames, which correspond to fields of integrate.Config.
type bootstrapFlag struct {
	file      string
	delta     bool // as integrate.Config.Delta
	hostnames bool // as integrate.ResourceOptions.AcceptHostnames

	localCluster string // as integrate.Config.LocalCluster

	source string // of the document, set by read
}

func (b *bootstrapFlag) register(fs *flag.FlagSet) {
	fs.StringVar(&b.file, "b", "", "bootstrap `file` (default: the one of the environment, as for gRPC)")
	fs.BoolVar(&b.delta, "delta", false, "use incremental ADS, like integrate.Config.Delta; control planes without it are used in the "+
		"state-of-the-world variant (default: only for servers with the feature xdslb.delta_ads)")
	fs.BoolVar(&b.hostnames, "hostnames", false, "accept DNS names as addresses of endpoints, like integrate.ResourceOptions.AcceptHostnames")
}

// config returns a configuration with a bootstrap document and the flags.
func (b *bootstrapFlag) config(document []byte) integrate.Config {
	return integrate.Config{
		Bootstrap: document, Delta: b.delta, LocalCluster: b.localCluster, Linger: -1, Logger: silent, Resources: integrate.ResourceOptions{AcceptHostnames: b.hostnames},
	}
}

// read returns the bootstrap document and its source.
func (b *bootstrapFlag) read() (text []byte, from string, err error) {
	defer func() { b.source = from }()
	switch {
	case b.file != "":
		text, err = os.ReadFile(b.file)
		return text, "file " + b.file, err
	case os.Getenv("GRPC_XDS_BOOTSTRAP") != "":
		text, err = os.ReadFile(os.Getenv("GRPC_XDS_BOOTSTRAP"))
		return text, "file " + os.Getenv("GRPC_XDS_BOOTSTRAP") + " (GRPC_XDS_BOOTSTRAP)", err
	case os.Getenv("GRPC_XDS_BOOTSTRAP_CONFIG") != "":
		return []byte(os.Getenv("GRPC_XDS_BOOTSTRAP_CONFIG")), "GRPC_XDS_BOOTSTRAP_CONFIG", nil
	}
	return nil, "", errors.New("no bootstrap: use -b FILE, GRPC_XDS_BOOTSTRAP or GRPC_XDS_BOOTSTRAP_CONFIG")
}

// target returns the target that is the only argument, and the bootstrap document.
func (b *bootstrapFlag) target(args []string) (target string, text []byte, err error) {
	if err := want(args, "TARGET"); err != nil {
		return "", nil, err
	}
	text, _, err = b.read()
	return fullTarget(args[0]), text, err
}

// question has the flags of commands about an RPC.
type question struct {
	bootstrapFlag
	resources string
	headers   metadata.MD
	states    map[netip.AddrPort]connectivity.State
	timeout   time.Duration
	tls       tlsFlags // for a running process
}

func (q *question) register(fs *flag.FlagSet) {
	q.bootstrapFlag.register(fs)
	q.headers = metadata.MD{}
	fs.StringVar(&q.resources, "f", "", "`file` with resources, as printed by dump, or - for standard input (default: the control plane)")
	fs.DurationVar(&q.timeout, "timeout", 10*time.Second, "time to wait for the control plane")
	q.states = map[netip.AddrPort]connectivity.State{}
	fs.Func("down", "`address` of an endpoint that is assumed to be unreachable; may be repeated", func(s string) error {
		a, ok := picker.ParseAddr(s)
		if !ok {
			return errors.New("want ADDRESS:PORT")
		}
		q.states[a] = connectivity.TransientFailure
		return nil
	})
	fs.Func("H", "`header` k=v of the RPC; may be repeated", func(s string) error {
		k, v, ok := strings.Cut(s, "=")
		if !ok || k == "" {
			return errors.New("want k=v")
		}
		q.headers.Append(k, v)
		return nil
	})
}

// whatIf returns the question about a target, with resources from the file or the control plane. It
// contacts no endpoint.
func (q *question) whatIf(e *env, target, method string) (integrate.WhatIf, error) {
	w := integrate.WhatIf{Target: fullTarget(target), Method: method, States: q.states}
	w.Config.Resources.AcceptHostnames = q.hostnames
	var err error
	if q.resources != "" {
		if q.file != "" {
			if w.Config.Bootstrap, _, err = q.read(); err != nil {
				return w, err
			}
		}
		w.Resources, err = readFile(q.resources)
		return w, err
	}
	if w.Config.Bootstrap, _, err = q.read(); err != nil {
		return w, err
	}
	w.Resources, _, err = e.fetch(w.Config.Bootstrap, w.Target, &q.bootstrapFlag, q.timeout)
	return w, err
}

func (q *question) context(e *env) context.Context {
	return metadata.NewOutgoingContext(e.ctx, q.headers)
}

// fullTarget expands a name to "xds:///name".
func fullTarget(s string) string {
	if strings.Contains(s, ":///") || strings.HasPrefix(s, "xds:") || strings.HasPrefix(s, "xdslb:") {
		return s
	}
	return "xds:///" + s
}

func readFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(os.Stdin)
	}
	return os.ReadFile(name)
}

// want checks the number of arguments.
func want(args []string, names ...string) error {
	if len(args) < len(names) {
		return usageError("missing argument: " + strings.Join(names[len(args):], ", "))
	}
	if len(args) > len(names) {
		return usageError(fmt.Sprintf("unexpected argument: %q", args[len(names)]))
	}
	return nil
}
