// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package integrate makes grpc-go channels pick by xDS.
//
// Import it and use [NewClient] where grpc.NewClient was used, or add
// [DialOptions] to an existing call:
//
//	cc, err := integrate.NewClient("xds:///orders:8080",
//		grpc.WithTransportCredentials(insecure.NewCredentials()))
//
// # Structure
//
// gRPC is on one side of this package, the kernel on the other. A channel has
// three objects of ours:
//
//	resolver  resolver.go   joins the shared XdsClient; tells gRPC, once, which LB policy to use
//	balancer  balancer.go   follows the target's configuration, owns the SubConns
//	picker    pick.go       the one picker gRPC ever sees; snapshots are swapped under it
//
// A configuration goes from the XdsClient straight to the balancer, without
// JSON, attributes or a resolver round trip (D7):
//
//	xds.Client -> lb.Update           balancer.go
//	           -> cluster.update      update.go    endpoints old to new, connections kept
//	           -> cluster.choose      priority.go  which priority is used (A56)
//	           -> lb.publish          publish.go   picker.Build, one atomic store
//
// The state of a SubConn enters at endpoint.go and takes the last two steps.
// An RPC takes one:
//
//	stablePicker.Pick -> picker.Snapshot.Pick -> a prebuilt balancer.PickResult
//
// Its Done is bound to the endpoint when the endpoint is created; it holds no
// snapshot, so that a stream that lasts for days keeps no old ring alive (D9).
//
// # What routes say besides
//
// Timeouts and retries go into gRPC's service config where it can say them
// (methodconfig.go). The rest is for interceptors: they match the route, and what
// they find travels with the RPC's context to its picks.
//
//	link.go        how an interceptor finds its channel's LB policy
//	plans.go       what is to be done for each route, made when routes change
//	intercept.go   UnaryInterceptor, StreamInterceptor
//	retry.go       retries (A44)
//	httpfilter.go  HTTP filters (A39), also those of users
//	fault.go       fault injection (A33)
//	session.go     session affinity (A55, A60): cookies; override.go: picks
//	authority.go   authority rewriting (A81), which takes no interceptor
//
// COVERAGE.md has the requirements and their tests.
//
// # What endpoints say of themselves
//
// Three things happen by the clock rather than by an update or a SubConn's state:
//
//	outlier.go    once per interval outliers are ejected, and return (A50)
//	weigh.go      once per update period reports become weights (A58, A114)
//	slowstart.go  while endpoints warm up, their cluster is compiled anew
//
// What they go by is gathered at the end of RPCs, behind one pointer of the endpoint
// that is nil where nobody asks (taps.go). The formulas are packages of their own:
// internal/outlier, internal/orcaweight.
//
// # Policies of others
//
// A custom policy (A52), and gRPC's own pick_first (A62), connect the endpoints
// themselves (D10):
//
//	groups.go     a priority has a group for each locality, or one for all
//	group.go      a group has a child, and a second one while the policy is switched
//	child.go      a child is a balancer of gRPC's registry, and the ClientConn it sees
//	childconn.go  its SubConns hold the endpoints' connections
//	delegate.go   the snapshot draws the group, the child picks
//	first.go      of pick_first the snapshot picks, there being one to pick
//
// What the policy sees of EDS is in attributes: [EndpointInfoOf]. Messages of a
// control plane's own are converted by [Config.Policies]. examples/custom is a
// policy out of tree.
//
// # Without xDS
//
// Three of the kernel's policies are LB policies for any channel, by name in the
// service config: [WeightedRoundRobin], [RingHash], [LeastRequest]
// (standalone.go). Their configuration is made of what the channel's own resolver
// says; all else is the same balancer.
//
// # Concurrency
//
// One mutex per channel serialises whatever changes the balancer. Picks take
// none. The balancer starts goroutines only to close connections; its timers (failover, retirement,
// publication) stop with it. Configurations arrive on a goroutine of the
// XdsClient's, which cancelling the watch waits for.
//
// # Cost
//
// A SubConn's state change is O(priorities); publications come at least 1 ms
// apart in a storm and are O(endpoints) each, so that n endpoints coming up
// cost O(n), not O(n²). An update costs one pass over the endpoints of the
// clusters that changed; localities whose endpoints are the same slice are
// passed over.
//
// # Why not a tree of LB policies
//
// gRPC's own xDS is a tree of nine policies that hand pickers up and JSON down.
// Every level costs each RPC an indirection and each update a pass over all
// endpoints. Flattened, a pick is a walk over slices of one snapshot, route
// and cluster cannot disagree (D6), and a change is diffed once.
//
// Sources: gRFC A27, A28, A31, A32, A33, A39, A44, A50, A51, A55, A56, A58, A60, A61,
// A75, A81, A114, A115; requirements are cited by id in the code.
package integrate
