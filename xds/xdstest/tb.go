// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest

// TB is what New and NewBackends need of a *testing.T or *testing.B. Package
// testing itself stays out of programs that use this package.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// New is Start for tests: an error ends the test, and the end of the test stops
// the server.
func New(tb TB, opts Options) *Server {
	tb.Helper()
	s, err := Start(opts)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(s.Stop)
	return s
}

// NewBackends is StartBackends for tests: an error ends the test, and the end of
// the test stops the backends.
func NewBackends(tb TB, n int, opts BackendOptions) []*Backend {
	tb.Helper()
	bs, err := StartBackends(n, opts)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	for _, b := range bs {
		tb.Cleanup(b.Stop)
	}
	return bs
}
