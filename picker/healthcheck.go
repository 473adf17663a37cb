// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

// HealthCheck is the health check of a cluster: a connection receives RPCs once the health service
// of its backend reports SERVING (A17).
type HealthCheck struct {
	Service string // empty means the whole server
}
