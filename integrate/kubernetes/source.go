// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
)

// A change is published quiet after the last event, and at most latest after the first one.
const (
	quiet  = 100 * time.Millisecond
	latest = 900 * time.Millisecond
)

// stream is what run uses of *xds.SourceStream.
type stream interface {
	Names(typeURL string) []string
	Changed() <-chan struct{}
	Deliver(typeURL string, resources map[string]proto.Message, pending ...string) error
	Fail(err error)
}

// source translates the services of the names that are subscribed to. Only run uses the fields
// after mu's.
type source struct {
	clients clients
	options options
	warn    func(name string, err error)

	mu     sync.Mutex
	dirty  map[[2]string]bool // namespace and service with events; the empty one means all
	errs   map[string]error   // of the last request, by kind and namespace
	failed bool               // errs has changed
	now    bool               // lists have become complete
	wake   chan struct{}      // with a buffer of one

	namespaces  map[string]*watched
	nodes       *watched
	assignments map[portKey]*assignment
	delivered   map[string]map[string]proto.Message // by type and name
	pending     map[string][]string                 // by type: names of namespaces that have not been read
	names       map[string][]string                 // by type, subscribed to
	warned      map[string]string                   // by name
}

// watched are lists which may be incomplete.
type watched struct {
	*lists
	complete bool // guarded by source.mu
}

// assignment is the translation of a service.
type assignment struct {
	localities []locality
	err        error // the port does not exist
}

func newSource(c clients, o options, warn func(name string, err error)) *source {
	return &source{
		clients: c, options: o, warn: warn,
		dirty: map[[2]string]bool{}, errs: map[string]error{}, wake: make(chan struct{}, 1),
		namespaces: map[string]*watched{}, assignments: map[portKey]*assignment{},
		delivered: map[string]map[string]proto.Message{}, pending: map[string][]string{}, names: map[string][]string{}, warned: map[string]string{},
	}
}

// run returns when ctx ends.
func (s *source) run(ctx context.Context, out stream) error {
	if s.options.nodes {
		s.nodes = &watched{}
		s.nodes.lists = watchNodes(ctx, s.clients, s, s.complete(s.nodes))
	}
	defer func() {
		for _, ns := range s.namespaces {
			ns.stop()
		}
		if s.nodes != nil {
			s.nodes.stop()
		}
	}()
	timer := time.NewTimer(0)
	timer.Stop()
	var first time.Time // of the events since the last publication
	for {
		s.subscribe(ctx, out)
		publish := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-out.Changed():
			publish = true
			s.subscribe(ctx, out)
		case <-timer.C:
			publish = true
		case <-s.wake:
			s.mu.Lock()
			publish = s.now
			changed := len(s.dirty) > 0
			s.mu.Unlock()
			if changed && !publish {
				if first.IsZero() {
					first = time.Now()
				}
				timer.Reset(min(quiet, time.Until(first.Add(latest))))
			}
		}
		if publish {
			timer.Stop()
			first = time.Time{}
			if err := s.publish(out); err != nil {
				return err
			}
		}
		s.report(out)
	}
}

// signal wakes run.
func (s *source) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *source) changed(namespace, service string) {
	s.mu.Lock()
	s.dirty[[2]string{namespace, service}] = true
	s.mu.Unlock()
	s.signal()
}

func (s *source) requested(kind string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.errs[kind]; err == nil && before == nil || err != nil && before != nil && err.Error() == before.Error() || errors.Is(err, context.Canceled) {
		return
	}
	s.failed = true
	if err == nil {
		delete(s.errs, kind)
	} else {
		s.errs[kind] = fmt.Errorf("%s: %w", kind, err)
	}
	s.signal()
}

// complete returns the function to call when lists are complete.
func (s *source) complete(w *watched) func() {
	return func() {
		s.mu.Lock()
		w.complete, s.now = true, true
		s.mu.Unlock()
		s.signal()
	}
}

// report reports the errors, if they have changed. Before the first delivery an error makes the client
// use its next server, so it is reported once no namespace remains that may still be read.
func (s *source) report(out stream) {
	s.mu.Lock()
	var errs []error
	for _, kind := range slices.Sorted(maps.Keys(s.errs)) {
		errs = append(errs, s.errs[kind])
	}
	failed := s.failed
	for name, ns := range s.namespaces {
		failing := s.errs[kindOf("services", name)] != nil || s.errs[kindOf("endpointslices", name)] != nil || s.errs["nodes"] != nil
		if len(s.delivered) == 0 && !ns.complete && !failing {
			failed = false
		}
	}
	if failed {
		s.failed = false
	}
	s.mu.Unlock()
	if failed {
		out.Fail(errors.Join(errs...))
	}
}

// subscribe starts and stops the informers of namespaces.
func (s *source) subscribe(ctx context.Context, out stream) {
	used := map[string]bool{}
	for _, t := range types {
		for _, name := range out.Names(t) {
			if k, err := parseName(name); err == nil {
				used[k.namespace] = true
			}
		}
	}
	for name, ns := range s.namespaces {
		if used[name] {
			continue
		}
		ns.stop()
		delete(s.namespaces, name)
		maps.DeleteFunc(s.assignments, func(k portKey, _ *assignment) bool { return k.namespace == name })
		s.mu.Lock()
		maps.DeleteFunc(s.errs, func(kind string, _ error) bool {
			return kind == kindOf("services", name) || kind == kindOf("endpointslices", name)
		})
		s.failed = true
		s.mu.Unlock()
		s.signal()
	}
	for name := range used {
		if s.namespaces[name] == nil {
			ns := &watched{}
			ns.lists = watchNamespace(ctx, s.clients, name, s, s.complete(ns))
			s.namespaces[name] = ns
		}
	}
}

// publish delivers the types whose resources have changed.
func (s *source) publish(out stream) error {
	s.mu.Lock()
	s.now = false
	for k := range s.dirty {
		maps.DeleteFunc(s.assignments, func(p portKey, _ *assignment) bool {
			return k == [2]string{} || k == [2]string{p.namespace, p.service}
		})
	}
	clear(s.dirty)
	complete := map[string]bool{}
	for name, ns := range s.namespaces {
		complete[name] = ns.complete && (s.nodes == nil || s.nodes.complete)
	}
	s.mu.Unlock()
	for _, t := range types {
		names := out.Names(t)
		resources, pending := map[string]proto.Message{}, []string(nil)
		for _, name := range names {
			k, err := parseName(name)
			if err == nil && !complete[k.namespace] {
				pending = append(pending, name)
				continue
			}
			if err == nil {
				a := s.translate(k)
				if err = a.err; err == nil {
					resources[name] = resource(t, name, a.localities)
					if before := s.delivered[t][name]; proto.Equal(before, resources[name]) {
						resources[name] = before
					}
				}
			}
			s.warnOnce(name, err)
		}
		before, known := s.delivered[t]
		if !known && len(pending) == len(names) || known && maps.Equal(before, resources) && slices.Equal(s.pending[t], pending) && slices.Equal(s.names[t], names) {
			continue
		}
		s.delivered[t], s.pending[t], s.names[t] = resources, pending, names
		if err := out.Deliver(t, resources, pending...); err != nil {
			return err
		}
	}
	return nil
}

// translate returns the translation of a service, which is kept until its next event.
func (s *source) translate(k portKey) *assignment {
	if a := s.assignments[k]; a != nil {
		return a
	}
	a := &assignment{}
	s.assignments[k] = a
	ns := s.namespaces[k.namespace]
	svc := ns.service(k.namespace, k.service)
	if svc == nil {
		a.err = fmt.Errorf("service %s/%s does not exist", k.namespace, k.service)
		return a
	}
	port, err := findPort(svc, k.port)
	if err != nil {
		a.err = err
		return a
	}
	zones := func(string) (string, string) { return "", "" }
	if s.nodes != nil {
		zones = s.nodes.zone
	}
	a.localities = merge(svc, port, ns.slicesOf(k.service), zones)
	return a
}

// warnOnce logs why a resource does not exist, unless the reason is unchanged.
func (s *source) warnOnce(name string, err error) {
	switch {
	case err == nil:
		delete(s.warned, name)
	case s.warned[name] != err.Error():
		s.warned[name] = err.Error()
		s.warn(name, err)
	}
}
