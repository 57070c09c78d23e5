local m = require "moec"
function m.swish(x) return x * m.sigmoid(x) end
