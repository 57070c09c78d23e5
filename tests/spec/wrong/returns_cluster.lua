local m = require "moec"
return m.layout { mesh = { "dp=2" } }
