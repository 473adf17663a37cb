// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package kit

import "testing"

// Must ends the test if err is not nil. It is for the steps that lead to what a test checks.
func Must(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}
