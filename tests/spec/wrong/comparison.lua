local m = require "moec"
local function leaky(gate, up)
  if gate < 0 then gate = 0.01 * gate end
  return gate * up
end
local mlp = m.mlp { hidden = 64, activation = leaky }
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = { m.block { ffn = mlp } } }
