local m = require "moec"
return m.model {
  name = "a", vocab = 512, width = 512, sequence = 128,
  layers = m.stack(1, function()
    return m.block { ffn = m.experts { count = 8, top_k = 2, expert = { hidden = 256 } } }
  end),
  parameters = {
    { "*", init = 0.01 },
    { "*.router.w_scores", lr = 0.1 },
  },
}
