// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import "github.com/xdslb/xdslb/integrate/internal/balancer"

// ForgetWeightsNoted has the next configuration that has weights logged again, as in a new
// process: another test may have had it logged.
func ForgetWeightsNoted() { balancer.WeightsNoted.Store(false) }
