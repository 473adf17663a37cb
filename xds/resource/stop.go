// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import "errors"

// ErrStopped is returned by Decode if Options.Stopped has returned true. The resource may be
// valid.
var ErrStopped = errors.New("resource: decoding was stopped")

// stopEvery is the number of endpoints decoded between two calls of Options.Stopped.
const stopEvery = 1024

// A stopper allows decoding of a large resource to be stopped between two of its elements.
type stopper struct {
	request func() bool // Options.Stopped
	stopped bool        // it has returned true
}

// stop reports whether decoding must stop.
func (s *stopper) stop() bool {
	if s.request != nil && !s.stopped {
		s.stopped = s.request()
	}
	return s.stopped
}

// stopAt is stop for element i of many cheap elements: it calls stop once per stopEvery.
func (s *stopper) stopAt(i int) bool { return i%stopEvery == stopEvery-1 && s.stop() }
