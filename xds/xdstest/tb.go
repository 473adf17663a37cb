// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest

// TB is the part of *testing.T and *testing.B that New and NewBackends need. It avoids
// linking package testing into programs that use this package.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// New is Start for tests: an error fails the test, and the server is stopped at the end of the
// test.
func New(tb TB, opts Options) *Server {
	tb.Helper()
	s, err := Start(opts)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(s.Stop)
	return s
}

// NewBackends is StartBackends for tests: an error fails the test, and the backends are stopped
// at the end of the test.
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
