local m = require "moec"
local seed = os.time()
