// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package files reads files that may be too large or may hang, as a FIFO or a file on a hung mount
// does.
package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sync/singleflight"
)

// Read is os.ReadFile for files that might not end, such as devices: a file of more bytes than the
// limit is an error.
func Read(name string, limit int) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err == nil && len(data) > limit {
		return nil, fmt.Errorf("%s is larger than %d MiB", name, limit>>20)
	}
	return data, err
}

// errSlow is the cause of the end of the context of Soon.
var errSlow = errors.New("not finished within two seconds")

// Soon returns a context that ends after the longest time for which callers wait for files that they
// can do without.
func Soon(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, 2*time.Second, errSlow)
}

// A Reader runs one function at a time that reads files. The zero value is ready to use.
type Reader struct{ group singleflight.Group }

// Read runs the function, unless it is running already, and returns its error, or the cause of the end
// of ctx if that ends first. The function then continues, since neither opening a file nor reading a
// regular file can be interrupted: a file on a hung mount has no deadlines.
func (r *Reader) Read(ctx context.Context, read func() error) error {
	select {
	case result := <-r.group.DoChan("", func() (any, error) { return nil, read() }):
		return result.Err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
