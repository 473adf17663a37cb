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
// A blank import registers the schemes "xds" and "xdslb" too, for programs whose
// channels are made by others. Such channels lack two things. They have no interceptors
// of ours, so HTTP filters and some retries and timeouts are not applied, which is logged.
// And where the program links google.golang.org/grpc/xds as well, scheme "xds" belongs to
// whichever package was initialized last. That is usually stock's; then nothing of this
// package runs that could say so. Scheme "xdslb" is always ours.
//
// [Explain] says where an RPC would go if it were made now, and why nowhere else:
//
//	x, err := integrate.Explain(ctx, cc, "/shop.Cart/Add")
//	if err != nil {
//		return err // the channel is idle, not ours, or has no configuration
//	}
//	fmt.Print(x) // text; as JSON it is plain data
//
// # Structure
//
// gRPC is on one side of this package, the kernel on the other. A channel has
// three objects of ours:
//
//	resolver  resolver.go   joins the shared XdsClient; tells gRPC which LB policy to use, and method configs
//	balancer  balancer.go   follows the target's configuration, owns the SubConns
//	picker    pick.go       the one picker that gRPC ever sees; snapshots are swapped under it
//
// A configuration goes from the XdsClient straight to the balancer, without
// JSON, attributes or a resolver round trip (D7):
//
//	xds.Client -> lb.Update                balancer.go
//	           -> lb.channelConfigLocked   channelconfig.go   what is this channel's own: subsets, weights ignored
//	           -> cluster.update           update.go          endpoints old to new, connections kept
//	           -> priority.afterUpdate     priority.go        new endpoints connect, child policies are updated
//	           -> cluster.choose           cluster.go         which priority is used (A56)
//	           -> lb.publishSoonLocked     publish.go         picker.Build or Rebuild, one atomic store
//
// A SubConn's state enters at conn.onState (conn.go). It goes to lb.observeLocked
// (endpoint.go) or to a child policy, and ends in cluster.choose and lb.publishSoonLocked.
// An RPC's path is:
//
//	stablePicker.Pick -> picker.Snapshot.Pick -> a prebuilt balancer.PickResult
//
// Its Done is bound to the endpoint when the endpoint is created. It holds no
// snapshot, so a stream that lasts for days keeps no old ring alive (D9).
//
// # Files
//
// What users call:
//
//	config.go        Config, NewClient, DialOptions, NewBuilder
//	interceptor.go   UnaryInterceptor, StreamInterceptor
//	httpfilter.go    HTTPFilter, for filters of users (A39)
//	endpointinfo.go  EndpointInfo: what EDS says, for custom policies
//	hash.go          WithRequestHash; random hashes; what snapshots know of the channel
//	standalone.go    the LB policies for channels without xDS, whose addresses may be
//	                 names or sockets
//	credentials.go   NewCredentials: TLS from xDS (A29)
//	rollout.go       XDSLB_DISABLE, XDSLB_ENABLE: whose a channel is; stock.go: channels
//	                 that are stock's
//	shadow.go        Shadow: a trial on a channel of stock's; shadowcall.go: one RPC of it;
//	                 shadowstate.go: what it is compared with
//	status.go        Status, StatusOf: what channels are at
//	channels.go      Channels: the same for each channel, with each route and endpoint
//	waitready.go     WaitReady: until RPCs of a method would be sent
//	errors.go        the errors of RPCs, their reasons for programs
//	explain.go       Explain: where an RPC would go, and why nowhere else
//	whatif.go        ExplainWhatIf, InspectWhatIf, PickWhatIf: the same by resources of a file
//
// The balancer:
//
//	balancer.go          lb: what gRPC and the XdsClient call
//	serial.go            the mutex, the queue of callbacks, timers
//	channelconfig.go     what this channel makes of a configuration that all share
//	cluster.go           cluster: which priority is used, what picks see of it; leaf
//	clusterlist.go       all of them, and which have changed since the last publication
//	priority.go          priority: its phase and its endpoints; prioritygroups.go: its groups
//	counting.go          what RPCs of a policy are counted by
//	locality.go          locality: its endpoints, and the version of what picks see of them
//	update.go            reconciler: from one configuration to the next
//	publish.go           when snapshots are made, and when gRPC is told
//	counters.go          circuit breakers and load reports, shared by the process
//	overprovisioning.go  priorities that share their load, as in Envoy
//	ondemand.go          endpoints that connect when an RPC asks for them
//	recorder.go          the channel's journal and log of events; changes.go: what a configuration changed
//	connectivity.go      states in gRPC's terms and in the kernel's
//	ignored.go           features of resources that are unsupported
//	zones.go             what is said of policies that go by zones
//	statusof.go          what each part says of itself for Status
//
// Connections:
//
//	conn.go          conn: one connection and its owner; its life is drawn there
//	replace.go       a connection that another takes the place of, when TLS settings change
//	endpoint.go      endpoint: what picks and priorities go by
//	security.go      what a cluster says about TLS, on its way to the handshake (A29)
//	multiaddress.go  an endpoint with several addresses, among which pick_first chooses (A61)
//
// Picks:
//
//	pick.go       stablePicker: bind, pick from the snapshot, look up the outcome
//	delegate.go   picks by child policies
//	override.go   picks for RPCs of sessions (A55, A60)
//	tried.go      picks of attempts that avoid the endpoints tried before
//	authority.go  authority rewriting (A81), which takes no interceptor
//
// What happens by the clock, rather than by an update or a SubConn's state, and what
// it goes by:
//
//	loadaware.go  once per update period localities get their shares by what their
//	              endpoints report, as in Envoy
//	outlier.go    once per interval outliers are ejected, and return (A50)
//	prober.go     endpoints are asked for their load (Prequal); syncprobe.go: for one RPC
//	weights.go    once per update period reports become weights (A58, A114); while
//	              endpoints are in slow start, their cluster is compiled anew
//	observers.go  who hears how an endpoint's RPCs end, nil where nobody asks; metrics
//	              of backends for load reports (A85)
//
// The formulas are packages of their own: internal/outlier, internal/orcaweight.
//
// What can be seen from outside:
//
//	metrics.go     metrics of channels: what is counted, and read when somebody looks
//	metricsxds.go  those of XdsClients
//	endpointcalls.go  RPCs by endpoint, counted while somebody looks
//	labels.go      labels of gRPC's per-attempt metrics
//
// METRICS.md has the list. Package internal/metric defines and records the
// metrics.
//
// Explanations:
//
//	explainer.go        what the snapshot says of an RPC, joined with the status of its clusters
//	detail.go           priorities, localities and hashes of a cluster; why a priority is in use
//	detailendpoint.go   an endpoint: its weight, its share, or why it is out
//	routestatus.go      a route and its conditions
//	simulation.go       a balancer whose SubConns are in the states that the caller supposes
//
// Child policies are balancers of gRPC's registry that connect the endpoints
// themselves: custom policies (A52), and gRPC's own pick_first (A62, D10):
//
//	group.go         a priority has a group for each locality, or one for all; a group
//	                 has a child, and a second one while the policy is switched
//	child.go         child: the balancer, and the ClientConn that it sees
//	childsubconn.go  childSubConn: a SubConn as the child sees it, which has a conn
//
// With pick_first the snapshot picks the one endpoint that the child has selected.
// Messages of a control plane's own are converted by [Config.Policies].
// examples/custom is a policy out of tree.
//
// # What routes say besides
//
// Timeouts and retries go into gRPC's service config where it can say them. The
// rest is for interceptors: they match the route, and what they find travels with
// the RPC's context to its picks. All of that is package internal/perrpc.
// COVERAGE.md has the requirements and their tests. DIFFERENCES.md lists what
// google.golang.org/grpc/xds does otherwise.
//
// # choose
//
// cluster.choose follows each change of a priority's state. choosePriority is A56's
// ChoosePriority: the first priority that is READY, IDLE, or has time left to connect.
// It activates the priorities on its way. choose departs from it in one case: while the
// chosen priority is still connecting, the one that was in use stays in use if it is
// READY, or gives way to one above it that is. Once the chosen priority takes RPCs, those
// below it that do not share its load are retired: their connections stay for
// [Config].RetireAfter. Which phase a priority is
// in, and with which timer, is drawn at type phase in priority.go.
//
// # Without xDS
//
// Five of the kernel's policies are LB policies for any channel, by name in the
// service config: [WeightedRoundRobin], [RingHash], [LeastRequest], [LeastLatency],
// [Prequal]. Their
// configuration is made of what the channel's own resolver says; all else is the
// same balancer.
//
// # Rolling out and back
//
// The environment variables XDSLB_DISABLE and XDSLB_ENABLE hand channels to
// google.golang.org/grpc/xds, if the program links that, by patterns of their targets.
// docs/rollout.md has the rules. They are read when a channel connects: first, and
// whenever it leaves idle mode. Our interceptors let RPCs of such a channel pass.
//
// # Concurrency
//
// One mutex per channel (the mutex) serialises whatever changes the balancer. Picks do not
// take it, except that the first RPC which asks an IDLE child policy to connect does.
// Functions that need the mutex end in Locked, or are methods of a type whose comment
// says so.
//
// gRPC's ClientConn and SubConns are called with the mutex held, but for Shutdown and
// the registration of listeners: gRPC calls back from goroutines of its own. Child
// policies, pick_first and the resolver may call back before they return. So they are
// called without the mutex, in order, from Runtime.Call.
//
// Goroutines are started for:
//
//   - the callbacks, while there are any; one at a time (lb.unlock); and lines of the log (package eventlog)
//   - SubConns that are shut down, which may take 5 s (lb.shutdownPendingLocked)
//   - an endpoint that an RPC asks to connect (lb.requestConnect)
//   - the last report of a load reporter (reporter.unref)
//   - probes, while picks want some (prober.round)
//
// and in internal/perrpc for attempts that are hedged.
//
// Timers (failover, retirement, publication, outlier detection,
// weights and loads, slow start, texts of failures, call watches)
// take the mutex and stop with the balancer. Configurations arrive on a goroutine of
// the XdsClient's. Cancelling the watch does not wait for it; a closed balancer
// ignores what still comes.
//
// # Cost
//
// A SubConn's state change is O(priorities); publications come at least 1 ms
// apart in a storm and are O(endpoints of the clusters that changed), so that n
// endpoints coming up cost O(n), not O(n²). An update costs one pass over the endpoints of the
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
