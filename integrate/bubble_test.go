// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"testing/synctest"
	"time"
)

// pass lets time pass, in a bubble, and what happens in it happen.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
