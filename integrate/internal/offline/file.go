// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/resource"
)

const (
	// pollInterval is the time between two readings of a file. A changed text is used when it is
	// the same twice, since a file that is being written may be valid too.
	pollInterval = 700 * time.Millisecond
	maxFile      = 64 << 20 // bytes
)

// RegisterFiles registers the sources of scheme file: a file in the format of Parse, which is read
// again while it is in use; and of scheme Remembered.
func RegisterFiles() {
	xds.RegisterSource("file", func(uri string) (xds.Source, error) {
		return &file{name: strings.TrimPrefix(uri, "file://")}, nil
	})
	xds.RegisterSource(strings.TrimSuffix(Remembered, ":"), func(uri string) (xds.Source, error) {
		return remembered{strings.TrimPrefix(uri, Remembered)}, nil
	})
}

// file is the source of a file.
type file struct {
	name    string
	text    []byte     // in use
	current *Resources // of text; nil before the first valid text
}

// Run implements xds.Source.
func (f *file) Run(ctx context.Context, s *xds.SourceStream) error {
	text, err := f.read()
	if err == nil {
		err = f.use(s, text)
	}
	if err != nil && f.current == nil {
		return err
	}
	if err != nil { // an earlier stream has delivered it
		_ = f.current.deliver(s, nil, false)
		s.Fail(err)
	}
	var latest []byte
	failed := err != nil
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
		text, err := f.read()
		switch {
		case err == nil && bytes.Equal(text, f.text):
		case err == nil && !bytes.Equal(text, latest):
			latest = text
			continue
		case err == nil:
			err = f.use(s, text)
		}
		if err != nil || failed {
			s.Fail(err)
		}
		failed, latest = err != nil, text
	}
}

// use makes a text the one in use.
func (f *file) use(s *xds.SourceStream, text []byte) error {
	r, err := Parse(text)
	if err == nil {
		err = r.deliver(s, f.current, false)
	}
	if err != nil {
		return fmt.Errorf("xdslb: resources: file %s: %w", f.name, err)
	}
	f.text, f.current = text, r
	return nil
}

// read reads the file.
func (f *file) read() ([]byte, error) {
	info, err := os.Stat(f.name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", f.name)
	}
	return readSame(f.name, nil)
}

// readSame reads a file, which has to be the one with the description unless that is nil.
func readSame(name string, want os.FileInfo) ([]byte, error) {
	in, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if got, err := in.Stat(); want != nil && (err != nil || !os.SameFile(got, want)) {
		return nil, errors.New(name + " was replaced while it was read")
	}
	text, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = errors.New(name + " is larger than 64 MiB")
	}
	return text, err
}

// deliver delivers the resources, each type before those that refer to it, so that no name is missing in between. Previous
// resources that are gone are deleted after all changes have been delivered, since these may end their use. With
// partial, the names that the resources lack may exist.
func (r *Resources) deliver(s *xds.SourceStream, previous *Resources, partial bool) error {
	sets := [resource.NumTypes]map[string]proto.Message{}
	gone := [resource.NumTypes]map[string]proto.Message{} // sets, and what is gone
	for t := range sets {
		sets[t], gone[t] = map[string]proto.Message{}, map[string]proto.Message{}
	}
	add := func(to *[resource.NumTypes]map[string]proto.Message, from *Resources) error {
		for k, found := range from.byName {
			m, err := found.GetResource().UnmarshalNew()
			if err != nil {
				return err
			}
			to[k.typ][k.name] = m
		}
		return nil
	}
	if previous != nil {
		if err := add(&gone, previous); err != nil {
			return err
		}
	}
	if err := errors.Join(add(&sets, r), add(&gone, r)); err != nil {
		return err
	}
	for _, all := range [][resource.NumTypes]map[string]proto.Message{gone, sets} {
		for t, set := range slices.Backward(all[:]) {
			url := resource.Type(t).URL()
			var pending []string
			if partial {
				pending = s.Names(url) // those of the set are delivered
			}
			if err := s.Deliver(url, set, pending...); err != nil {
				return err
			}
		}
	}
	return nil
}
