// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"testing"

	"github.com/xdslb/xdslb/bench/leak"
)

// A Config has no goroutines, and channels closed with their credentials
// stopped leave none behind.
func TestMain(m *testing.M) { leak.VerifyTestMain(m) }
