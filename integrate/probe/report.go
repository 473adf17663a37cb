// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import "fmt"

// ServiceName and Method name the RPC that a probe is.
const (
	ServiceName = "xdslb.probe.v1.Probe"
	Method      = "/" + ServiceName + "/Load"
)

// A Report is what a server says about its load. The tags make it the protobuf message of
// the package documentation; gRPC's codec takes it as it is.
type Report struct {
	// InFlight is how many unary RPCs the server has in flight.
	InFlight uint32 `protobuf:"varint,1,opt,name=in_flight,json=inFlight,proto3"`
	// LatencyNs is how long RPCs took, in nanoseconds, that found about as many in
	// flight; 0 is not known.
	LatencyNs uint64 `protobuf:"varint,2,opt,name=latency_ns,json=latencyNs,proto3"`
	// FailingPPM is the part of the RPCs of late, in millionths, that failed.
	FailingPPM uint32 `protobuf:"varint,3,opt,name=failing_ppm,json=failingPpm,proto3"`
	// Weight is how much the server can do, compared with others; 0 is 1.
	Weight float64 `protobuf:"fixed64,4,opt,name=weight,proto3"`
	// GoingAway says that the server is about to stop.
	GoingAway bool `protobuf:"varint,5,opt,name=going_away,json=goingAway,proto3"`
}

// Reset makes r the empty report.
func (r *Report) Reset() { *r = Report{} }

// String returns the report for logs.
func (r *Report) String() string { return fmt.Sprintf("%+v", *r) }

// ProtoMessage marks a protobuf message.
func (*Report) ProtoMessage() {}

// XXX_MessageName returns the message's full name. It is what protobuf-go asks a message for
// that has no descriptor, by just this name.
func (*Report) XXX_MessageName() string { return "xdslb.probe.v1.Report" }
