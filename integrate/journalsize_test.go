// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestJournalIsSmall (LB-SEC-1): texts that a control plane or a backend chooses are cut
// in the journal, which would keep the last 128 of them otherwise.
func TestJournalIsSmall(t *testing.T) {
	b, _ := newTestLB(t, Config{})
	for i := range 4 {
		b.Error(errors.New(fmt.Sprint(i) + strings.Repeat("é", 1<<20)))
	}
	size := 0
	for _, ev := range b.journal.events() {
		size += len(ev.Err.Error())
	}
	if size > 8<<10 {
		t.Errorf("the texts of 4 events take %d bytes", size)
	}
	if last := b.journal.events()[3].Err.Error(); !strings.HasPrefix(last, "3é") || !strings.HasSuffix(last, "é…") {
		t.Errorf("the text is %q", last)
	}
}
