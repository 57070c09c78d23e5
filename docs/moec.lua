-- SPDX-License-Identifier: Apache-2.0
-- Types of the language for editors: add docs/ to the library of your Lua language server.
-- Written from dsl/ and docs/language.md by `MOEC_UPDATE=1 ./dev test docs.language`.
---@meta moec

---@alias size integer|number
---@alias list table
---@class tensor
---@field size fun(self: tensor, axis?: integer): integer
---@operator add(tensor|number): tensor
---@operator sub(tensor|number): tensor
---@operator mul(tensor|number): tensor
---@operator div(tensor|number): tensor
---@operator pow(tensor|number): tensor
---@operator mod(tensor|number): tensor
---@operator idiv(tensor|number): tensor
---@operator unm: tensor
---@class block
---@field with fun(self: block, fields: table): block
---@overload fun(...): ...

local m = {}

---@class norm.fields
---@field over? size how many trailing axes are normalised together [1]
---@field gain? boolean learn a gain [true]
---@field eps? number|false default: the model's `eps`
---@param fields? norm.fields
---@return block
function m.norm(fields) end

---@class rope.fields
---@field theta? number base of the frequencies [10000]
---@field dims? size|false the first features, which turn; default all
---@field pairs? "half"|"adjacent" a feature's partner: half the width away, or its neighbour ["half"]
---@field scaling? function|false (frequencies, theta) to frequencies and an optional factor
---@param fields? rope.fields
---@return block
function m.rope(fields) end

---@class yarn.fields
---@field factor number how much longer the context becomes
---@field original size sequence length before
---@field fast? number turns within `original` from which a frequency stays [32]
---@field slow? number turns up to which it is divided by `factor` [1]
---@field truncate? boolean round both limits outwards to whole features [true]
---@param fields? yarn.fields
---@return block
function m.yarn(fields) end

---@class attention.fields
---@field heads size query heads
---@field kv_heads? size|false key and value heads; default `heads`
---@field head_dim? size|false default width // heads
---@field rope? block|function|boolean|rope.fields|false rotary positions; none: no positions
---@field qk_norm? "head"|"full"|false RMS norm of q and k, per head or across all heads
---@field window? size|false keys a query may see, itself included
---@field causal? boolean no key after the query [true]
---@field sinks? boolean a learned logit per head that takes part in the softmax [false]
---@field bias? boolean|"qkv" biases on q, k, v and o, or on the first three [false]
---@field scale? number|false of the logits; default head_dim ^ -0.5
---@param fields? attention.fields
---@return block
function m.attention(fields) end

---@class mla.fields
---@field heads size query, key and value heads
---@field q_rank? size|false latent width of q; none: q straight from x
---@field kv_rank size latent width of k and v; what a cache holds
---@field nope_dim size features per head without position
---@field rope_dim size features per head with position; one such key for all heads
---@field v_dim size features per value head
---@field rope? block|function|boolean|rope.fields applied to the second part [true]
---@param fields? mla.fields
---@return block
function m.mla(fields) end

---@class mlp.fields
---@field hidden size inner width
---@field activation? function of (h): plain; of (gate, up): two input projections [m.swiglu]
---@field bias? boolean on every projection [false]
---@param fields? mlp.fields
---@return block
function m.mlp(fields) end

---@class router.fields
---@field score? function logits to scores: m.softmax, m.sigmoid or yours [m.softmax]
---@field normalize? boolean make the chosen weights sum to 1 [false]
---@field scale? number then multiply them [1]
---@field bias? boolean learned bias on the logits [false]
---@field correction? number|false rate of a balancing bias that ranks experts but does not weigh them
---@field groups? size|false experts lie in that many groups
---@field keep_groups? size groups a token may use, by the sum of their two best ranks [1]
---@field balance_loss? number weight of the load-balancing loss; key `balance` [0]
---@field balance? "microbatch"|"sequence"|"global" set of tokens it is taken over ["microbatch"]
---@field z_loss? number weight of the mean squared log-partition; key `z` [0]
---@param fields? router.fields
---@return block
function m.router(fields) end

---@class experts.fields
---@field count size routed experts
---@field top_k size experts per token
---@field expert block|function|boolean|mlp.fields one expert; any block
---@field router? block|function|boolean|router.fields (x, count, top_k) to ids, weights [true]
---@field shared? block|function|boolean|mlp.fields|false a block every token passes; added
---@field capacity? number|"dropless" rows per rank over the even share; a layout may override ["dropless"]
---@param fields? experts.fields
---@return block
function m.experts(fields) end

---@class block.fields
---@field attention? block|function|boolean|attention.fields|false first branch; m.mla or any block
---@field ffn? block|function|boolean|mlp.fields|false second branch; m.experts or any block
---@field norm? "pre"|"output"|"peri"|"none" "pre": x + f(norm(x)); "output": x + norm(f(x)); "peri": both norms ["pre"]
---@param fields? block.fields
---@return block
function m.block(fields) end

---@class embedding.fields
---@field scale? number multiplies the rows of the table [1]
---@field norm? block|function|boolean|norm.fields|false after scaling
---@param fields? embedding.fields
---@return block
function m.embedding(fields) end

---@class head.fields
---@field tied? boolean use the embedding's table, transposed [false]
---@field cap? number|false soft limit: cap * tanh(logits / cap)
---@param fields? head.fields
---@return block
function m.head(fields) end

---@class mtp.fields
---@field layer block|function|boolean|block.fields a layer of each depth
---@field depth? size tokens predicted beyond the next [1]
---@field weight? number of their mean loss [0.3]
---@param fields? mtp.fields
---@return block
function m.mtp(fields) end

---@class model.fields
---@field name string in logs, plans and checkpoints
---@field vocab size rows of the embedding; padded by you, never silently
---@field width size of the residual stream
---@field sequence size tokens per training sequence
---@field layers list blocks or functions; pipeline stages are cut between them
---@field embedding? block|function|boolean|embedding.fields (ids, vocab, width) to x [true]
---@field norm? block|function|boolean|norm.fields before the head [true]
---@field head? block|function|boolean|head.fields (x, vocab) to logits [true]
---@field z_loss? number on the logits [0]
---@field mtp? block|function|boolean|mtp.fields|false multi-token prediction; training only
---@field eps? number of every norm that gives none [1e-06]
---@field parameters? list rules for init, decay, lr, precision [{}]
---@param fields? model.fields
---@return block
function m.model(fields) end

---@class figure.fields
---@field value number in the unit of the field
---@field evidence? "measured"|"same_gpu"|"same_generation"|"specification" how it is known ["specification"]
---@field source? string|false where it is from
---@param fields? figure.fields
---@return block
function m.figure(fields) end

---@class curve.fields
---@field points list pairs { x, y }, x ascending; lines between them in log-log
---@field ranks? size of a collective: among how many it was measured [2]
---@field evidence? "measured"|"same_gpu"|"same_generation"|"specification" how it is known ["specification"]
---@field source? string|false where it is from
---@param fields? curve.fields
---@return block
function m.curve(fields) end

---@class products.fields
---@field peak number dense FLOP per second
---@field reach? number share of it that large products reach [0.75]
---@field depth? number length of the contraction that reaches half of that [128]
---@field edge? number a tile of m x n takes 1 + edge (1/m + 1/n) times its arithmetic [0]
---@field tile? list largest tile of a unit: rows, columns [{}]
---@field experts? number reach of grouped products over that of dense ones [0.95]
---@field experts_depth? number depth of grouped products [512]
---@field wgrad? number reach of wgrads over that of forward [1]
---@field quantise_bytes? number traffic per number of the left operand before it can be used [0]
---@field quantise_launch? number seconds to launch that [0]
---@field evidence? "measured"|"same_gpu"|"same_generation"|"specification" how it is known ["specification"]
---@field source? string|false where it is from
---@param fields? products.fields
---@return block
function m.products(fields) end

---@class link.fields
---@field name string in reports
---@field size size devices or groups it joins
---@field rate number|block|function|boolean|figure.fields bytes per second, per device and direction
---@field latency? number|block|function|boolean|figure.fields seconds [2e-06]
---@field share? number|block|function|boolean|figure.fields of the rate, where there is no curve [0.8]
---@field gather? list m.curve, by ranks: seconds by bytes that leave a rank [{}]
---@field reduce_scatter? list the same [{}]
---@field all_to_all? list the same [{}]
---@field send? list the same [{}]
---@field row_fixed? number|block|function|boolean|figure.fields|false seconds of a dispatch or combine of few rows; none: latency
---@field rows_out? number|block|function|boolean|figure.fields|false bytes per second of rows put to experts; none: share of rate
---@field rows_back? number|block|function|boolean|figure.fields|false of rows fetched from experts
---@field blocks_out? number|block|function|boolean|figure.fields|false of rows that cross once per node
---@field blocks_back? number|block|function|boolean|figure.fields|false of these, back
---@param fields? link.fields
---@return block
function m.link(fields) end

---@class device.fields
---@field name string in reports
---@field arch string instruction set that kernels are compiled for
---@field units size multiprocessors or cores
---@field memory number|block|function|boolean|figure.fields bytes
---@field reserved? number|block|function|boolean|figure.fields bytes of it that contexts and transports take [1073741824.0]
---@field bandwidth number|block|function|boolean|figure.fields bytes per second
---@field bf16 number|block|function|boolean|products.fields dense FLOP per second
---@field mxfp8? number|block|function|boolean|products.fields|false dense FLOP per second; none: not supported
---@field fp32? number|block|function|boolean|figure.fields|block|function|boolean|products.fields|false FLOP per second
---@field shared? size bytes of shared memory per unit [49152]
---@field l2? size|false bytes of the last cache
---@field sustained? number|block|function|boolean|figure.fields share of the rates of products and attention under load that lasts [0.95]
---@field overlap? number|block|function|boolean|figure.fields of a product's arithmetic and its traffic, the share of the shorter that the longer hides [1]
---@field launch? number|block|function|boolean|figure.fields seconds of a kernel beside others [3e-06]
---@field row_rate? number|block|function|boolean|figure.fields|false FLOP per second of row operations, of which an exponential has 8; none: their bytes decide
---@field stream? number|block|function|boolean|figure.fields share of bandwidth that row operations reach [0.8]
---@field move? number|block|function|boolean|figure.fields share that moves of rows reach [0.5]
---@field adam? number|block|function|boolean|figure.fields share that the optimizer reaches [0.8]
---@field cached? block|function|boolean|curve.fields|false how many times as fast traffic is, by a kernel's bytes, which caches still have; none: as memory
---@field attention? block|function|boolean|curve.fields|false share of the peak by sequence length, heads of 128; none: half of reach
---@field attention_back? block|function|boolean|curve.fields|false of its backward
---@field attention_narrow? number|block|function|boolean|figure.fields of heads of 128, time that all widths take, over time that grows with it [1]
---@field attention_block? number|block|function|boolean|figure.fields n keys reach n / (n + block) of the curve; 0: the curve has it [128]
---@field sharing? number|block|function|boolean|figure.fields how much faster it is while others that share its cores wait [1]
---@field contention? number|block|function|boolean|figure.fields how much slower compute is beside communication [1.2]
---@field source? string|false where its plain numbers are from
---@param fields? device.fields
---@return block
function m.device(fields) end

---@class cluster.fields
---@field name string in reports
---@field device block|function|boolean|device.fields all devices are alike
---@field links list m.link, innermost first
---@param fields? cluster.fields
---@return block
function m.cluster(fields) end

---@class layout.fields
---@field mesh? list axes and their sizes, outermost first: "pp=2", "dp=8", "ep=4" [{}]
---@field params? "resident"|"fsdp" weights: whole on every rank, or divided over dp and gathered before use ["resident"]
---@field expert_params? "resident"|"fsdp"|false the same of experts' weights, over dp / ep; none: as params
---@field schedule? "1f1b"|"interleaved"|"zb" of the pipeline ["1f1b"]
---@field slots? size stages on each rank, if interleaved [1]
---@field stages? list|false layers of each stage, in order; none: even
---@field microbatch? size|false sequences that a rank computes at once; none: the run's
---@field recompute? "cheap"|"none"|"block"|list|false what backward computes again, of all layers or of each; none: the run's
---@field capacity? number|"dropless"|false room for rows over the even share of a rank; none: the spec's
---@field round? number|"whole"|false if dropless: room of one round; what does not fit comes in further ones
---@field transport? "rows"|"blocks" how rows reach experts: one by one into memory; between nodes in blocks ["rows"]
---@field node? size with transport=blocks: ranks of ep that reach each other's memory; divides ep [1]
---@field row_align? size first rows of experts are multiples of it, a power of two; rows between are zero [1]
---@field overlap? "on"|"off" what crosses ranks does so while kernels run, or alone ["on"]
---@field placement? function|false (layer, expert) to the rank on the ep axis; none: expert e on e // (count / ep)
---@field precision? list rules { addresses, precision } for what the spec leaves open [{}]
---@param fields? layout.fields
---@return block
function m.layout(fields) end

function m.abs(x) end

--- the axis disappears: over one feature axis
---@param options? table keep
function m.amax(x, axis, options) end

function m.arg(name, default) end

function m.arity(f) end

--- [T,H,a] [T,G,a] [T,G,b] → [T,H,b], G divides H: attention inside the document; sinks [H] are extra logits without value
---@param options? table causal=true, window, sinks, scale
function m.attend(q, k, v, options) end

--- identity: x + m.stop_gradient(f(x) - x) is straight-through; round to "bf16", "fp32"
function m.cast(x, p) end

--- broadcast: m.min(a, b), m.clamp(x, lo, hi)
function m.clamp(x, lo, hi) end

--- [R, n...], [T, k] → [T, n...]: weighted sum of a token's copies (plain sum without weights); dropped copies add 0
function m.combine(rows, weights) end

--- : swap the last two axes; join the last axis, others broadcast
function m.concat(a, b, ...) end

function m.constant(numbers) end

--- [T, V], int [T] → [T]: 0 where the label is -1
function m.cross_entropy(logits, labels) end

function m.define(name, rows, f) end

--- [T, n...] → [R, n...]: copy tokens to experts; with each, [T, k, n...]: every copy its own
---@param options? table each
function m.dispatch(x, route, options) end

--- [V, n...], int [T] → [T, n...]: rows of a table; 0 for -1
function m.embed(w, ids) end

function m.eq(a, b) end

function m.erf(x) end

function m.exp(x) end

--- : raise "*what* must be [T, n...]" unless it is; for functions that take functions
function m.expect(what, x, ...) end

--- [a..., n], int [a..., k] → [a..., k]: pick along the last axis
function m.gather(x, ids) end

function m.ge(a, b) end

function m.geglu(gate, up) end

function m.gelu(x) end

function m.get(name) end

function m.gt(a, b) end

function m.hardware(name) end

--- int [T, k] → [E] or [S, E]: how often each id occurs
function m.histogram(ids, E, set) end

function m.include(name) end

--- identity: hints to the recompute pass
function m.keep(x) end

--- int [T]: target k ahead (default 1), -1 where the data masks it
function m.labels(k) end

function m.le(a, b) end

--- [k] → [n...], n a size or a list: matmul with new w_name (and b_name); per expert on rows
---@param options? table bias, over, each, init, precision
function m.linear(name, x, n, options) end

function m.log(x) end

--- [n] → [n], [n] → []: over the last axis
function m.log_sum_exp(x) end

--- [T], [S] or scalar: see below
function m.loss(name, x, weight) end

function m.lt(a, b) end

--- [e..., a..., k...] × [e..., k..., n...] → [e..., a..., n...]: contract the last over axes; the first each are shared (block-diagonal)
---@param options? table over=1, each=0
function m.matmul(x, w, options) end

function m.max(a, b) end

---@param options? table keep
function m.mean(x, axis, options) end

--- same, or a vector: logged under its address, reduced like a loss or added up over the step
---@param options? table sum=false
function m.metric(name, x, options) end

--- broadcast: m.min(a, b), m.clamp(x, lo, hi)
function m.min(a, b) end

function m.ne(a, b) end

--- int [a...] → [a..., n]: 0 or 1; all 0 for -1
function m.one_hot(ids, n) end

function m.param(name, sizes, options) end

--- int [T]: position in the document
function m.positions() end

--- identity: hints to the recompute pass
function m.recompute(x) end

function m.relu(x) end

function m.relu2(x) end

--- same count, one may be -1: feature axes only
function m.reshape(x, ...) end

--- x → x: over the last over axes; gain may be nil
---@param options? table over=1, eps
function m.rms_norm(x, gain, options) end

--- [T, a..., n], freq [r/2], r ≤ n: turn the first r features by position × frequency
---@param options? table pairs="half", factor=1
function m.rotate(x, freq, options) end

--- int [T, k] → route: plan where every copy goes; records load and dropped, counts over the step, as metrics
---@param options? table capacity
function m.route(ids, E, options) end

function m.rsqrt(x) end

function m.scope(name, f, ...) end

function m.shared(name, f) end

--- [T, n...] → [T, n...]: the value k tokens earlier in the document, else 0
function m.shift(x, k) end

function m.sigmoid(x) end

function m.sign(x) end

function m.silu(x) end

--- [n] → [n], [n] → []: over the last axis
function m.softmax(x) end

--- several results: cut the last axis (a number or a list of sizes); take the first axis apart
function m.split(x, parts) end

function m.sqrt(x) end

function m.stack(n, block) end

function m.state(name, sizes) end

--- identity: x + m.stop_gradient(f(x) - x) is straight-through; round to "bf16", "fp32"
function m.stop_gradient(x) end

---@param options? table keep
function m.sum(x, axis, options) end

function m.swiglu(gate, up) end

function m.tanh(x) end

--- int [T]: ids, or the id k tokens ahead in the document; -1 past its end
function m.tokens(k) end

--- [n] → int [k]: ids of the largest, descending; ties to the lower id
function m.top_k(x, k) end

--- : swap the last two axes; join the last axis, others broadcast
function m.transpose(x) end

--- several results: cut the last axis (a number or a list of sizes); take the first axis apart
function m.unbind(x) end

--- [T, n...]: in [0, 1), a hash of seed, step, address, token, element
function m.uniform(...) end

--- x has no row axis: after the optimizer: state = f(state, total), total = sum of x over all microbatches and ranks of the step
function m.update(state, x, f) end

--- bool; broadcast: comparisons and choice
function m.where(c, a, b) end

return m
