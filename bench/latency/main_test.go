// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package latency

import (
	"testing"

	"github.com/xdslb/xdslb/bench/leak"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }
