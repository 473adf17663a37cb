// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package sources lets code of the same process stand for a control plane: see xds.RegisterSource. A
// stream of incremental ADS in memory connects it with the client, which therefore decodes,
// validates and caches its resources like those of a server.
package sources

import (
	"context"
	"fmt"
	"strings"
	"sync"
)

// A Source delivers resources in place of a control plane. The client calls Run while it uses the source,
// and calls it again, after a backoff of about a second, when it returns. Calls do not overlap. Run returns when ctx
// ends. A Run that returns before the first resources were delivered counts as a server that
// cannot be reached, so the client uses the next server of the bootstrap.
type Source interface {
	Run(ctx context.Context, s *Stream) error
}

// Opener returns the source of a server_uri. A client calls it once, when it first uses the source.
type Opener func(uri string) (Source, error)

var registered sync.Map // of Opener, by scheme

// Register registers the sources of a scheme. It panics if there are any already.
func Register(scheme string, open Opener) {
	if _, again := registered.LoadOrStore(strings.ToLower(scheme), open); again {
		panic(fmt.Sprintf("xdslb: a source is already registered for scheme %q", scheme))
	}
}

// Of returns the function that opens the source of a server_uri; nil if its scheme is not that of
// sources.
func Of(uri string) Opener {
	scheme, _, ok := strings.Cut(uri, ":")
	if !ok {
		return nil
	}
	open, ok := registered.Load(strings.ToLower(scheme))
	if !ok {
		return nil
	}
	return open.(Opener)
}
