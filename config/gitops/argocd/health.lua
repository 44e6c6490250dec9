-- Health of Hawser's kinds for Argo CD: docs/gitops.md shows where it goes.
-- One script serves VolumeAttachmentIntent, VolumeAttachmentIntentSet and VolumeManager:
--   Progressing  the present generation is not reconciled, the object is being deleted, or Ready is not True
--   Degraded     Stalled is True: no retry can fix it
--   Healthy      Ready is True for the present generation
local health = {status = "Progressing", message = "waiting for the first reconcile"}

if obj.metadata.deletionTimestamp ~= nil then
  health.message = "being deleted; waiting until the volumes are released"
  return health
end
if obj.status == nil or obj.status.conditions == nil then
  return health
end
if obj.status.observedGeneration ~= obj.metadata.generation then
  health.message = "waiting until generation " .. tostring(obj.metadata.generation) .. " is reconciled"
  return health
end

local ready = nil
for _, condition in ipairs(obj.status.conditions) do
  if condition.type == "Stalled" and condition.status == "True" then
    return {status = "Degraded", message = condition.reason .. ": " .. (condition.message or "")}
  end
  if condition.type == "Ready" then
    ready = condition
  end
end
if ready == nil then
  return health
end
health.message = ready.reason .. ": " .. (ready.message or "")
if ready.status == "True" then
  health.status = "Healthy"
end
return health
