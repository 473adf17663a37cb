// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"

	"github.com/xdslb/xdslb/xds/eventlog"
)

// maxFaults bounds the text about all faults of a response to a size that a server can log.
const maxFaults = 8 << 10

// faults contains the errors of a response: the text of the first ones, as far as there is
// room, and the number of all. The zero value contains no errors.
type faults struct {
	text []byte
	kept int // that the text has
	n    int
}

// add adds a fault.
func (f *faults) add(err error) {
	f.n++
	if f.kept < f.n-1 {
		return // there was no room for an earlier one
	}
	text := err.Error()
	if f.n > 1 && len(f.text)+len(text) > maxFaults {
		return
	}
	if f.n > 1 {
		f.text = append(f.text, "; "...)
	}
	f.text = append(f.text, eventlog.CutTo(text, maxFaults)...)
	f.kept++
}

// String returns the text.
func (f *faults) String() string {
	if f.kept < f.n {
		return fmt.Sprintf("%s; and %d more", f.text, f.n-f.kept)
	}
	return string(f.text)
}
