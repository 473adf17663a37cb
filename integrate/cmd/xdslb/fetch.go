// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"sync"
	"time"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc/resolver"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/xdslb/xdslb/integrate/internal/perrpc"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/csds"
)

var dumpCommand = command{
	name: "dump", args: "TARGET", summary: "print the resources of a target as JSON",
	about: "Asks the control plane for the resources of a target, and prints them as CSDS has\n" +
		"them, with their state and what is wrong with them. No endpoint is touched. The\n" +
		"other commands read the output with -f. A control plane sees one more client,\n" +
		"which has the node id of the bootstrap.",
	example: "xdslb dump xds:///orders > orders.json",
	flags: func(e *env, fs *flag.FlagSet) func([]string) (bool, error) {
		var boot bootstrapFlag
		boot.register(fs)
		timeout := fs.Duration("timeout", 10*time.Second, "how long to wait for the control plane")
		return func(args []string) (bool, error) {
			target, text, err := boot.target(args)
			if err != nil {
				return false, err
			}
			js, err := e.fetch(text, target, boot.delta, *timeout)
			if js != nil {
				fmt.Fprintf(e.stdout, "%s\n", js)
			}
			return false, err
		}
	},
}

// fetch returns the resources of a target as a CSDS response in JSON. It connects to control
// planes only. If the target cannot be served, there is an error with what resources there
// are.
func (e *env) fetch(boot []byte, target string, delta bool, timeout time.Duration) ([]byte, error) {
	cfg, err := bootstrap.Parse("the bootstrap", boot)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	authority := resolver.Target{URL: *u}.Endpoint()
	listener, err := cfg.ListenerName(u.Host, authority)
	if err != nil {
		return nil, err
	}
	client := xds.Acquire(cfg, xds.Options{Filter: perrpc.FilterType, Delta: delta, Linger: -1, ResourceTimeout: timeout})
	defer client.Release()
	w := &firstAnswer{done: make(chan struct{})}
	defer client.Watch(listener, authority, w)()
	ctx, cancel := context.WithTimeout(e.ctx, timeout)
	defer cancel()
	defer e.progress("waiting for %s of %s", listener, cfg.Servers[0].URI)()
	select {
	case <-w.done:
	case <-ctx.Done():
		w.set(errors.New("no answer in time"))
		for _, s := range client.Servers() {
			if s.Err != nil {
				w.err = fmt.Errorf("no answer in time; xDS server %s: %w", s.URI, s.Err)
			}
		}
	}
	status, err := csds.NewServer(csds.Options{}).FetchClientStatus(e.ctx, &statusv3.ClientStatusRequest{})
	if err != nil {
		return nil, err
	}
	js, err := protojson.MarshalOptions{Multiline: true, Resolver: knownTypes{}}.Marshal(status)
	return js, errors.Join(err, w.err)
}

// firstAnswer waits for what becomes of a target first. It implements xds.Watcher.
type firstAnswer struct {
	once sync.Once
	done chan struct{}
	err  error
}

// Update implements xds.Watcher.
func (w *firstAnswer) Update(*picker.Config) { w.set(nil) }

// Error implements xds.Watcher.
func (w *firstAnswer) Error(err error) { w.set(err) }

func (w *firstAnswer) set(err error) {
	w.once.Do(func() {
		w.err = err
		close(w.done)
	})
}

// knownTypes has messages that are not linked shown with their type alone.
type knownTypes struct{}

func (knownTypes) FindMessageByName(name protoreflect.FullName) (protoreflect.MessageType, error) {
	return protoregistry.GlobalTypes.FindMessageByName(name)
}

func (knownTypes) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	if t, err := protoregistry.GlobalTypes.FindMessageByURL(url); err == nil {
		return t, nil
	}
	return new(emptypb.Empty).ProtoReflect().Type(), nil
}

func (knownTypes) FindExtensionByName(name protoreflect.FullName) (protoreflect.ExtensionType, error) {
	return protoregistry.GlobalTypes.FindExtensionByName(name)
}

func (knownTypes) FindExtensionByNumber(name protoreflect.FullName, field protoreflect.FieldNumber) (protoreflect.ExtensionType, error) {
	return protoregistry.GlobalTypes.FindExtensionByNumber(name, field)
}
