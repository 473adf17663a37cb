// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"log/slog"

	"github.com/xdslb/xdslb/bench/kit"
)

// logs captures the process's log while the tests run.
var logs kit.Logs

func init() { slog.SetDefault(slog.New(&logs)) }
