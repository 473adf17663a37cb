// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/picker"
)

// kernelState returns a state of gRPC's in the kernel's terms.
func kernelState(s connectivity.State) picker.Connectivity {
	switch s {
	case connectivity.Ready:
		return picker.Ready
	case connectivity.Idle:
		return picker.Idle
	case connectivity.Connecting:
		return picker.Connecting
	default:
		return picker.TransientFailure
	}
}

// grpcState returns a state of the kernel's in gRPC's terms.
func grpcState(s picker.Connectivity) connectivity.State {
	switch s {
	case picker.Ready:
		return connectivity.Ready
	case picker.Connecting:
		return connectivity.Connecting
	case picker.Idle:
		return connectivity.Idle
	default:
		return connectivity.TransientFailure
	}
}

// stateName returns gRPC's name of a state.
func stateName(s picker.Connectivity) string {
	return [...]string{picker.Idle: "IDLE", picker.Connecting: "CONNECTING", picker.Ready: "READY", picker.TransientFailure: "TRANSIENT_FAILURE"}[s]
}
