// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import "sync/atomic"

var keepBytes atomic.Bool

// KeepBytes has the clients that are acquired from now on keep the bytes of resources
// as they were received, in ResourceStatus.Raw. It is for packages that show them, such
// as csds, to call in their init, so that there are no clients yet. See "Cost" for
// what it costs.
func KeepBytes() { keepBytes.Store(true) }
