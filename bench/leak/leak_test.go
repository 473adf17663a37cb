// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package leak

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// A goroutine that ends late, by goleak's standard, is not a leak; one that does not end is.
func TestFind(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	end := make(chan struct{})
	go func() { <-end }()
	if err := find(2, ignore); err == nil {
		t.Error("a goroutine that waits is not found")
	}
	time.AfterFunc(time.Second, func() { close(end) })
	if err := find(patience, ignore); err != nil {
		t.Error(err)
	}
}
