/* A page that is opened from a disk may not start workers, and the search of the theme is one. There a hidden frame takes
   the worker's place: it runs the same script and passes the same messages. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inside = (this.inside = frame.contentWindow)
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      this.ready = new Promise((resolve, reject) => {
        const script = inside.document.createElement("script")
        script.src = new URL(address, location.href)
        script.onload = resolve
        script.onerror = reject
        inside.document.body.append(script)
      })
    }

    set onmessage(handler) {
      this.addEventListener("message", handler)
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
